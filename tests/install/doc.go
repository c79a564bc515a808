// Package install tests what is published as users run it: images by a container runtime. It needs
// root, as containerd does.
package install
