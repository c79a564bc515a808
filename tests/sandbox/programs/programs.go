// Package programs is the one table of what Isthmus's demo, its tests and its benchmarks run: what
// each program is built from or packed in, where it is looked for, and who needs it.
package programs

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Need is who runs a program.
type Need int

// Those who run programs. Whoever runs more than the one before has what that one has, but for
// releases.
const (
	Demo       Need = iota // make demo, and make test where it is there
	Tests                  // make test-all
	Linux                  // make test-all, on Linux alone
	Clusters               // make test-install
	Benchmarks             // make bench; it leaves out what is missing
	Releases               // make test-release, and nothing of the others
)

// Program is one that somebody runs. It is built by Go, taken from a package of the system, or made
// of packages of JavaScript.
type Program struct {
	Name   string
	Need   Need
	Source *Source
	Packed *Packed
	Locked bool // tests/deps/<name>/package-lock.json names the packages; they go to bin/<name>
}

// Source is what Go builds a program from.
type Source struct {
	Module    string // directory with a go.mod
	Package   string
	VersionOf string // the module whose version is the program's; also an argument of its build, where it is Dapr's or Kubernetes'
	Seconds   int    // of two processors, where nothing is compiled yet
	Ours      bool   // our code is in it, so Go is asked each time whether it is current
}

// Packed is how systems pack a program.
type Packed struct {
	Debian      []string
	Homebrew    string   // empty: it has none
	Probe       string   // an argument with which it says or does something, and ends
	Directories []string // where packages put it, besides the PATH; of several versions the last is taken
	Names       []string // that it has on some systems
}

const (
	daprdModule = "components/daprd"
	dapr        = "github.com/dapr/dapr"
)

// ofDapr is a program that is built from Dapr's code beside ours.
func ofDapr(name string, need Need, path string, seconds int) Program {
	return Program{Name: name, Need: need, Source: &Source{Module: daprdModule, Package: path, VersionOf: dapr, Seconds: seconds, Ours: true}}
}

// from is a program that is built from a module that tests/deps pins.
func from(module, name string, need Need, path, versionOf string, seconds int) Program {
	return Program{Name: name, Need: need, Source: &Source{Module: "tests/deps/" + module, Package: path, VersionOf: versionOf, Seconds: seconds}}
}

func kubernetes(name string, need Need, seconds int) Program {
	return from("kubernetes", name, need, "k8s.io/kubernetes/cmd/"+name, "k8s.io/kubernetes", seconds)
}

func packed(name string, need Need, probe, homebrew string, debian ...string) Program {
	return Program{Name: name, Need: need, Packed: &Packed{Debian: debian, Homebrew: homebrew, Probe: probe, Directories: directories}}
}

// in is a program whose packages put it where others are not.
func (p Program) in(directories ...string) Program {
	p.Packed.Directories = slices.Concat(p.Packed.Directories, directories)
	return p
}

var (
	directories = []string{"/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin", "/opt/homebrew/bin", "/opt/homebrew/sbin"}
	postgres    = []string{"/usr/pgsql-*/bin", "/usr/local/opt/postgresql*/bin", "/opt/homebrew/opt/postgresql*/bin", "/usr/lib/postgresql/*/bin"}
	cni         = []string{"/usr/lib/cni", "/usr/libexec/cni", "/opt/cni/bin"}
	java        = []string{"/usr/local/opt/openjdk*/bin", "/opt/homebrew/opt/openjdk*/bin", "/usr/lib/jvm/*/bin"}
)

// All are the programs, those that take longest to build first.
var All = []Program{
	ofDapr("sentry", Demo, "./sentry", 180),
	ofDapr("daprd", Demo, ".", 300),
	ofDapr("placement", Demo, "./placement", 10),
	ofDapr("daprd-stock", Tests, "./stock", 10),
	ofDapr("operator", Tests, "./operator", 50),
	ofDapr("injector", Clusters, "./injector", 10),
	from("consul", "consul", Tests, "github.com/hashicorp/consul", "github.com/hashicorp/consul", 200),
	from("etcd", "etcd", Tests, "go.etcd.io/etcd/server/v3", "go.etcd.io/etcd/server/v3", 60),
	from("etcd", "etcdctl", Tests, "go.etcd.io/etcd/etcdctl/v3", "go.etcd.io/etcd/etcdctl/v3", 10),
	from("etcd", "etcdutl", Tests, "go.etcd.io/etcd/etcdutl/v3", "go.etcd.io/etcd/etcdutl/v3", 10),
	kubernetes("kube-apiserver", Tests, 200),
	kubernetes("kubectl", Tests, 30),
	kubernetes("kube-controller-manager", Clusters, 60),
	kubernetes("kube-scheduler", Clusters, 30),
	kubernetes("kube-proxy", Clusters, 30),
	kubernetes("kubelet", Clusters, 60),
	from("helm", "helm", Tests, "helm.sh/helm/v4/cmd/helm", "helm.sh/helm/v4", 60),
	from("coredns", "coredns", Tests, "github.com/coredns/coredns", "github.com/coredns/coredns", 90),
	from("scheduler", "scheduler", Tests, "github.com/dapr/dapr/cmd/scheduler", dapr, 120),
	from("dex", "dex", Tests, "github.com/dexidp/dex/cmd/dex", "github.com/dexidp/dex", 60),
	{Name: "sdk-go", Need: Tests, Source: &Source{Module: "tests/sdks/go", Package: ".", VersionOf: "github.com/dapr/go-sdk", Seconds: 10, Ours: true}},
	{Name: "sdk-workflow", Need: Tests, Source: &Source{Module: "tests/sdks/workflow", Package: ".", VersionOf: "github.com/dapr/durabletask-go", Seconds: 30, Ours: true}},
	{Name: "grpc-js", Need: Tests, Locked: true},
	{Name: "dapr-js", Need: Tests, Locked: true},
	packed("redis-server", Tests, "--version", "redis", "redis-server", "redis-tools"),
	packed("postgres", Tests, "--version", "postgresql", "postgresql").in(postgres...),
	packed("initdb", Tests, "--version", "postgresql", "postgresql").in(postgres...),
	packed("dig", Tests, "-v", "bind", "bind9-dnsutils"),
	packed("kdig", Tests, "-V", "knot", "knot-dnsutils"),
	packed("drill", Tests, "-v", "ldns", "ldnsutils"),
	packed("unbound", Tests, "-V", "unbound", "unbound"),
	chromium(),
	packed("musl-gcc", Linux, "--version", "", "musl-tools", "musl-dev"),
	packed("node", Linux, "--eval=0", "node", "nodejs"),
	packed("python3", Linux, "--version", "python", "python3"),
	packed("openssl", Linux, "version", "openssl", "openssl"),
	packed("java", Linux, "-version", "openjdk", "default-jdk-headless").in(java...),
	packed("javac", Linux, "-version", "openjdk", "default-jdk-headless").in(java...),
	packed("containerd", Linux, "--version", "", "containerd"),
	packed("ctr", Linux, "--version", "", "containerd"),
	packed("containerd-shim-runc-v2", Linux, "-v", "", "containerd"),
	packed("runc", Linux, "--version", "", "runc"),
	packed("haproxy", Linux, "-v", "haproxy", "haproxy"),
	packed("prometheus", Linux, "--version", "", "prometheus"),
	packed("promtool", Linux, "--version", "", "prometheus"),
	packed("ptp", Clusters, "--version", "", "containernetworking-plugins").in(cni...),
	packed("host-local", Clusters, "--version", "", "containernetworking-plugins").in(cni...),
	packed("loopback", Clusters, "--version", "", "containernetworking-plugins").in(cni...),
	packed("nft", Clusters, "--version", "", "nftables"),
	packed("ip", Clusters, "-V", "", "iproute2"),
	from("cosign", "cosign", Releases, "github.com/sigstore/cosign/v3/cmd/cosign", "github.com/sigstore/cosign/v3", 240),
	from("krew", "krew", Releases, "sigs.k8s.io/krew/cmd/krew", "sigs.k8s.io/krew", 60),
	packed("rpm", Releases, "--version", "rpm", "rpm"),
	packed("qemu-aarch64-static", Releases, "-version", "", "qemu-user-static"),
	packed("ruby", Releases, "--version", "ruby", "ruby"),
	packed("dnsperf", Benchmarks, "-h", "dnsperf", "dnsperf"),
	packed("knotd", Benchmarks, "-V", "knot", "knot"),
	packed("nsd", Benchmarks, "-v", "nsd", "nsd"),
	packed("nginx", Benchmarks, "-v", "nginx", "nginx", "libnginx-mod-stream"),
	packed("sniproxy", Benchmarks, "-V", "sniproxy", "sniproxy"),
}

func chromium() Program {
	p := packed("chromium", Tests, "--version", "google-chrome", "chromium", "fonts-dejavu-core").in("/Applications/Google Chrome.app/Contents/MacOS")
	p.Packed.Names = []string{"google-chrome", "google-chrome-stable", "chromium-browser", "Google Chrome"}
	return p
}

// Named is the program of a name.
func Named(name string) (Program, bool) {
	i := slices.IndexFunc(All, func(p Program) bool { return p.Name == name })
	if i < 0 {
		return Program{}, false
	}
	return All[i], true
}

// For are the programs that somebody runs on a system, which is a name of Go's.
func For(need Need, system string) (some []Program) {
	for _, p := range All {
		if (need == Releases) != (p.Need == Releases) {
			continue
		}
		if (p.Need <= need || p.Need == Benchmarks && need > Demo) && (p.Need != Linux || system == "linux") {
			some = append(some, p)
		}
	}
	return some
}

// Variable is the environment variable that says where a program is.
func Variable(name string) string {
	return "ISTHMUS_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}

// Installed finds a program that a package of the system has put somewhere below root, which is
// "/", or on the PATH.
func (p Program) Installed(root string, look func(name string) (string, error)) (string, bool) {
	if p.Packed == nil {
		return "", false
	}
	names := append([]string{p.Name}, p.Packed.Names...)
	for _, name := range names {
		if path, err := look(name); err == nil {
			return path, true
		}
	}
	for _, pattern := range slices.Backward(p.Packed.Directories) {
		for _, name := range names {
			found, _ := filepath.Glob(filepath.Join(root, pattern, name)) // the patterns are good ones
			for _, path := range slices.Backward(found) {
				if Executable(path) {
					return path, true
				}
			}
		}
	}
	return "", false
}

// Target is the target of make that gets what somebody runs.
func (n Need) Target() string {
	return [...]string{Demo: "make deps-demo", Tests: "make deps", Linux: "make deps", Clusters: "make deps-install", Benchmarks: "make deps", Releases: "make test-release"}[n]
}

// Runs is the target of make that runs it.
func (n Need) Runs() string {
	return [...]string{Demo: "make demo", Tests: "make test-all", Linux: "make test-all", Clusters: "make test-install", Benchmarks: "make bench", Releases: "make test-release"}[n]
}

// Remedy says how a program is had.
func (p Program) Remedy() string {
	switch {
	case p.Packed == nil:
		return "build it in a clone of Isthmus: " + p.Need.Target()
	case p.Packed.Homebrew == "":
		return "get it with: " + p.Need.Target() + ", or install it: apt-get install " + p.Packed.Debian[0]
	default:
		return "get it with: " + p.Need.Target() + ", or install it: apt-get install " + p.Packed.Debian[0] + ", brew install " + p.Packed.Homebrew
	}
}

// Executable tells whether a path is that of a program.
func Executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}
