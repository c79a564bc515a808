package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/tests/sandbox/programs"
)

// unpacked has programs that systems pack: what this machine has is taken as it is; else apt-get
// downloads their packages, which are unpacked into bin/servers and installed nowhere; else Homebrew
// installs them. What is unpacked is unpacked anew together, as it shares libraries.
func unpacked(ctx context.Context, wanted []programs.Program, bin string) error {
	fetch := os.Getenv("ISTHMUS_SERVERS") == "fetch"
	var missing, again []programs.Program
	var here []string
	needed := false
	for _, p := range programs.All {
		if p.Packed == nil {
			continue
		}
		link, _ := os.Readlink(filepath.Join(bin, p.Name))
		if !slices.ContainsFunc(wanted, func(w programs.Program) bool { return w.Name == p.Name }) {
			if link != "" {
				again = append(again, p)
			}
			continue
		}
		path, err := programs.Find(p.Name)
		if err == nil && !fetch {
			err = runs(ctx, path, p)
		}
		switch {
		case err != nil || fetch:
			missing = append(missing, p)
			needed = needed || p.Need != programs.Benchmarks
		case link != "" && path == filepath.Join(bin, p.Name):
			again = append(again, p)
			here = append(here, path)
		default:
			here = append(here, path)
		}
	}
	switch {
	case !needed:
		fmt.Println("servers:", strings.Join(here, " "))
		return nil
	case onPath("apt-get") && onPath("dpkg-deb"):
		return (&apt{bin: bin, fetch: fetch}).get(ctx, append(missing, again...))
	case onPath("brew"):
		return brew(ctx, missing)
	}
	return fmt.Errorf("missing, and not to be had by apt-get or brew: %s; install them, and where they are not on the PATH name them in the environment, as %s", names(missing), programs.Variable(missing[0].Name))
}

func onPath(name string) bool {
	_, err := exec.LookPath(name)
	return err == nil
}

func names(of []programs.Program) string {
	var all []string
	for _, p := range of {
		all = append(all, p.Name)
	}
	return strings.Join(all, " ")
}

// runs tells whether a program runs: one that was unpacked may lack a library since the system was
// upgraded.
func runs(ctx context.Context, path string, p programs.Program) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if text, err := exec.CommandContext(ctx, path, p.Packed.Probe).CombinedOutput(); err != nil {
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		return fmt.Errorf("%s %s does not run: %w: %s", path, p.Packed.Probe, err, strings.Join(lines[max(0, len(lines)-3):], "\n"))
	}
	return nil
}

// packages are those of programs, each once.
func packages(of []programs.Program) (all []string) {
	for _, p := range of {
		all = append(all, p.Packed.Debian...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// brew has Homebrew install programs.
func brew(ctx context.Context, missing []programs.Program) error {
	install := []string{"install"}
	for _, p := range missing {
		if p.Packed.Homebrew != "" && !slices.Contains(install, p.Packed.Homebrew) {
			install = append(install, p.Packed.Homebrew)
		}
	}
	cmd := exec.CommandContext(ctx, "brew", install...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("brew %s: %w", strings.Join(install, " "), err)
	}
	for _, p := range missing {
		if _, err := programs.Find(p.Name); err != nil && p.Need != programs.Benchmarks {
			return fmt.Errorf("%s is installed where it is not looked for; name it: %s", p.Name, programs.Variable(p.Name))
		}
	}
	return nil
}

// apt unpacks packages of Debian.
type apt struct {
	bin      string
	fetch    bool   // also what is installed
	servers  string // where they are unpacked
	archives string
}

func (a *apt) get(ctx context.Context, wanted []programs.Program) (err error) {
	all := packages(wanted)
	advice := "install them yourself: sudo apt-get update && sudo apt-get install " + strings.Join(all, " ")
	if a.servers, err = a.place(); err != nil {
		return err
	}
	if a.archives, err = os.MkdirTemp("", "isthmus-servers-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(a.archives)) }()
	// apt-get's downloads run as a user of their own.
	if err := errors.Join(os.Chmod(a.archives, 0o755), os.Mkdir(filepath.Join(a.archives, "partial"), 0o755)); err != nil {
		return err
	}
	root := os.Getuid() == 0
	if len(listed(ctx, all)) < len(all) {
		if !root {
			return errors.New("apt-get's lists have not all of these packages, and only root can get newer ones; " + advice)
		}
		if err := command(ctx, "apt-get", "update", "-qq"); err != nil {
			return fmt.Errorf("%w; %s", err, advice)
		}
	}
	exact := versioned(ctx, listed(ctx, all))
	fmt.Println("servers: downloading", strings.Join(exact, " ")+", installing nothing")
	if err = a.download(ctx, exact); err != nil && root { // the lists may be older than the server's packages
		if err = command(ctx, "apt-get", "update", "-qq"); err == nil {
			err = a.download(ctx, exact)
		}
	}
	if err != nil {
		return fmt.Errorf("%w; %s", err, advice)
	}
	if err := a.unpack(ctx); err != nil {
		return err
	}
	for _, p := range wanted {
		if err := a.put(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// place is where packages are unpacked: bin/servers, unless root runs this where others may not pass
// through, such as below /root. PostgreSQL does not run as root.
func (a *apt) place() (string, error) {
	for dir := a.bin; os.Getuid() == 0 && dir != "/"; dir = filepath.Dir(dir) {
		if info, err := os.Stat(dir); err != nil {
			return "", err
		} else if info.Mode()&0o001 == 0 {
			return "/var/cache/isthmus/servers", nil
		}
	}
	return filepath.Join(a.bin, "servers"), nil
}

// command runs a program, whose output is in its error.
func command(ctx context.Context, name string, args ...string) error {
	if text, err := exec.CommandContext(ctx, name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, text)
	}
	return nil
}

// listed are the packages that apt-get knows.
func listed(ctx context.Context, all []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(p string) bool { return exec.CommandContext(ctx, "apt-cache", "show", p).Run() != nil })
}

var oneVersion = regexp.MustCompile(`(?m)^(postgresql-[0-9]+|openjdk-[0-9]+-j(dk|re)-headless)$`)

// versioned are packages with those in the place of PostgreSQL's and Java's that only name the version
// that the system has.
func versioned(ctx context.Context, all []string) (exact []string) {
	for _, p := range all {
		if p != "postgresql" && p != "default-jdk-headless" {
			exact = append(exact, p)
			continue
		}
		text, _ := exec.CommandContext(ctx, "apt-cache", "depends", "--recurse", "--no-recommends", "--no-suggests", "--no-enhances", "--no-conflicts", "--no-breaks", "--no-replaces", p).Output()
		exact = append(exact, oneVersion.FindAllString(string(text), -1)...)
	}
	slices.Sort(exact)
	return slices.Compact(exact)
}

// download gets packages, and what they need that is not installed.
func (a *apt) download(ctx context.Context, all []string) error {
	args := []string{"install", "-qq", "-y", "--no-install-recommends", "--download-only", "-o", "Debug::NoLocking=1", "-o", "Dir::Cache::archives=" + a.archives, "-o", "Dpkg::Use-Pty=0"}
	if a.fetch {
		args = append(args, "--reinstall")
	}
	return command(ctx, "apt-get", append(args, all...)...)
}

// unpack unpacks what was downloaded. The C library stays the system's, since it must fit the system's
// loader. Links that begin at the root of the system begin at the directory, where it has what they lead to.
func (a *apt) unpack(ctx context.Context) error {
	root := filepath.Join(a.servers, "root")
	if err := errors.Join(os.RemoveAll(a.servers), os.MkdirAll(root, 0o755), os.Chmod(a.servers, 0o755), os.Chmod(root, 0o755)); err != nil {
		return err
	}
	all, err := filepath.Glob(filepath.Join(a.archives, "*.deb"))
	if err != nil {
		return err
	}
	for _, p := range all {
		if name := filepath.Base(p); strings.HasPrefix(name, "libc6_") || strings.HasPrefix(name, "libc-bin_") {
			continue
		}
		if err := command(ctx, "dpkg-deb", "-x", p, root); err != nil {
			return err
		}
	}
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Type() != fs.ModeSymlink {
			return err
		}
		target, err := os.Readlink(path)
		if err != nil || !filepath.IsAbs(target) {
			return err
		}
		target = filepath.Join(root, target)
		if _, err := os.Stat(target); err != nil {
			return nil
		}
		return errors.Join(os.Remove(path), os.Symlink(target, path))
	})
}

// put puts into bin/ what was unpacked of a program: a script that runs it with the libraries that were
// unpacked with it.
func (a *apt) put(ctx context.Context, p programs.Program) error {
	program, err := a.program(p.Name)
	if err != nil {
		return err
	}
	if program == "" {
		// Downloaded it can't be: a version that no archive has is installed, say.
		path, err := programs.Find(p.Name)
		if err == nil {
			err = runs(ctx, path, p)
		}
		switch {
		case err == nil:
			fmt.Printf("servers: %s: %s, since apt-get can't download what is installed\n", p.Name, path)
		case p.Need != programs.Benchmarks:
			return fmt.Errorf("the packages %s hold no %s: %w; install it, and where it is not on the PATH name it: %s", strings.Join(p.Packed.Debian, " "), p.Name, err, programs.Variable(p.Name))
		}
		return nil
	}
	text, err := a.script(p.Name, program)
	if err != nil {
		return err
	}
	wrapper, link := filepath.Join(a.servers, p.Name), filepath.Join(a.bin, p.Name)
	if err := os.Remove(link); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := errors.Join(os.WriteFile(wrapper, text, 0o755), os.Chmod(wrapper, 0o755), os.Symlink(wrapper, link)); err != nil {
		return err
	}
	if err := runs(ctx, link, p); err != nil {
		return fmt.Errorf("%w; or install it: sudo apt-get install %s", err, strings.Join(p.Packed.Debian, " "))
	}
	fmt.Printf("servers: %s: unpacked into %s\n", p.Name, a.servers)
	return nil
}

// program is the last file of a name where programs stand; empty: there is none.
func (a *apt) program(name string) (last string, err error) {
	err = filepath.WalkDir(filepath.Join(a.servers, "root"), func(path string, d fs.DirEntry, err error) error {
		if dir := filepath.Base(filepath.Dir(path)); err == nil && !d.IsDir() && d.Name() == name && slices.Contains([]string{"bin", "sbin", "cni"}, dir) {
			last = path
		}
		return err
	})
	return last, err
}

func (a *apt) script(name, program string) ([]byte, error) {
	root := filepath.Join(a.servers, "root")
	var libraries []string
	for _, pattern := range []string{"usr/lib/*-linux-gnu*", "lib/*-linux-gnu*", "usr/lib/*-linux-gnu*/pulseaudio"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			return nil, err
		}
		libraries = append(libraries, found...)
	}
	run := fmt.Sprintf(`exec %q "$@"`, program)
	switch name {
	case "musl-gcc": // a script around the system's compiler, with a file that names directories
		found, err := filepath.Glob(filepath.Join(root, "usr/lib/*-linux-musl/musl-gcc.specs"))
		if err != nil || len(found) == 0 {
			return nil, fmt.Errorf("musl-gcc: no musl-gcc.specs below %s: %w", root, cmp.Or(err, fs.ErrNotExist))
		}
		text, err := os.ReadFile(found[0])
		if err != nil {
			return nil, err
		}
		specs := filepath.Join(a.servers, "musl-gcc.specs")
		if err := os.WriteFile(specs, bytes.ReplaceAll(text, []byte("/usr/"), []byte(root+"/usr/")), 0o644); err != nil {
			return nil, err
		}
		run = fmt.Sprintf(`exec "${REALGCC:-gcc}" "$@" -specs %q`, specs)
	case "chromium":
		// Its script in /usr/bin takes the program and its settings from the system's directories.
		// Fonts are those of the system, and those that were unpacked.
		fonts := filepath.Join(a.servers, "fonts.conf")
		text := fmt.Sprintf(`<fontconfig>
<include ignore_missing="yes">/etc/fonts/fonts.conf</include>
<dir>%s/usr/share/fonts</dir>
<cachedir>%s/fonts</cachedir>
<alias><family>monospace</family><prefer><family>DejaVu Sans Mono</family></prefer></alias>
</fontconfig>
`, root, a.servers)
		if err := os.WriteFile(fonts, []byte(text), 0o644); err != nil {
			return nil, err
		}
		run = fmt.Sprintf(`FONTCONFIG_FILE=%q exec %q "$@"`, fonts, filepath.Join(root, "usr/lib/chromium/chromium"))
	case "node": // Debian's reads files of its own in /usr/share, wherever it is itself
		run = fmt.Sprintf(`if [ "$(id -u)" = 0 ]; then root=; else root=--map-root-user; fi
exec unshare --mount $root sh -c 'mount --bind "%s/usr/share" /usr/share && exec "$0" "$@"' %q "$@"`, root, program)
	}
	return fmt.Appendf(nil, `#!/bin/sh
# Made by sandbox/have, which has unpacked the program from its Debian package.
LD_LIBRARY_PATH="%s${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export LD_LIBRARY_PATH
%s
`, strings.Join(libraries, ":"), run), nil
}
