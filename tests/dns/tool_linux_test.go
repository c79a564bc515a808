package dns

import (
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// tools are those that a person asks with. They read a response each in their own way, and
// refuse what is malformed.
var tools = []string{"dig", "kdig", "drill"}

// reply is a response as a tool shows it.
type reply struct {
	Text                          string // all that the tool printed
	Status, Opcode                string // as "NXDOMAIN", "QUERY"
	Flags                         string // in lower case and in order, as "aa qr"
	Answer, Authority, Additional []dns.RR
	EDE                           string // as "15 shop/checkout may not call …"; empty without
}

// limit is how long one question may take, on the slowest of machines.
const limit = 30 * time.Second

// dig asks the server with dig and fails the test when that has no response.
func (l *lab) dig(t *testing.T, from netip.Addr, args ...string) *reply {
	t.Helper()
	return l.by(t, "dig", from, args...)
}

// by asks the server with a tool and fails the test when that has no response.
func (l *lab) by(t *testing.T, tool string, from netip.Addr, args ...string) *reply {
	t.Helper()
	r, err := l.ask(meshtest.Within(t, limit), from, tool, args...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// ask asks the server with a tool from an address of the callers' place.
func (l *lab) ask(ctx context.Context, from netip.Addr, tool string, args ...string) (*reply, error) {
	all, err := l.run(ctx, from, tool, args...)
	if err != nil {
		return nil, err
	}
	return all[len(all)-1], nil
}

// run is ask for several questions. A port and a server among the arguments win.
func (l *lab) run(ctx context.Context, from netip.Addr, tool string, args ...string) ([]*reply, error) {
	binary, err := sandbox.Binary(tool)
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, "@") }) {
		args = append([]string{"@" + server.String()}, args...)
	}
	if !slices.Contains(args, "-p") {
		args = append([]string{"-p", port}, args...)
	}
	switch tool {
	case "dig":
		args = append([]string{"-r", "-b", from.String(), "+tries=1", "+time=20", "+noidnin"}, args...)
	case "kdig":
		args = append([]string{"-b", from.String(), "+retry=0", "+timeout=20", "+noidn"}, args...)
	case "drill":
		args = append([]string{"-I", from.String()}, args...)
	}
	place := l.callers
	if from == cart {
		place = l.cart
	}
	out, err := output(place, exec.CommandContext(ctx, binary, args...))
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w\n%s", tool, strings.Join(args, " "), err, out)
	}
	all := replies(out)
	if len(all) == 0 {
		return nil, fmt.Errorf("%s %s: no response in:\n%s", tool, strings.Join(args, " "), out)
	}
	return all, nil
}

var (
	headerLine  = regexp.MustCompile(`(?m)^;; ->>HEADER<<- opcode: (\w+)[,;] (?:status|rcode): (\w+)[,;] id: (\d+)`)
	flagsLine   = regexp.MustCompile(`(?mi)^;; flags: ?([a-z ]*);`)
	sectionLine = regexp.MustCompile(`(?m)^;; (ANSWER|AUTHORITY|ADDITIONAL) SECTION:`)
	edeLine     = regexp.MustCompile(`(?m)^;+ EDE: (\d+)(?: \([^)]*\))?(?:: (.*))?$`)
)

// replies reads what a tool printed.
func replies(text string) (all []*reply) {
	starts := headerLine.FindAllStringSubmatchIndex(text, -1)
	for i, s := range starts {
		end := len(text)
		if i+1 < len(starts) {
			end = starts[i+1][0]
		}
		r := &reply{Text: text[s[0]:end], Opcode: text[s[2]:s[3]], Status: text[s[4]:s[5]]}
		if m := flagsLine.FindStringSubmatch(r.Text); m != nil {
			set := strings.Fields(strings.ToLower(m[1]))
			slices.Sort(set)
			r.Flags = strings.Join(set, " ")
		}
		if m := edeLine.FindStringSubmatch(r.Text); m != nil {
			r.EDE = strings.TrimSpace(m[1] + " " + strings.Trim(m[2], `()'"`))
		}
		r.records()
		all = append(all, r)
	}
	return all
}

// records reads the sections of the response.
func (r *reply) records() {
	into := (*[]dns.RR)(nil)
	for line := range strings.Lines(r.Text) {
		line = strings.TrimSpace(line)
		if m := sectionLine.FindStringSubmatch(line); m != nil {
			into = map[string]*[]dns.RR{"ANSWER": &r.Answer, "AUTHORITY": &r.Authority, "ADDITIONAL": &r.Additional}[m[1]]
			continue
		}
		if line == "" || strings.HasPrefix(line, ";") || into == nil {
			continue
		}
		if rr, err := dns.NewRR(line); err == nil && rr != nil {
			*into = append(*into, rr)
		}
	}
}

// data is what records say, without names and TTLs, in order: "10.0.0.1 10.0.0.2".
func data(records []dns.RR) string {
	all := make([]string, len(records))
	for i, rr := range records {
		all[i] = strings.Join(strings.Fields(strings.TrimPrefix(rr.String(), rr.Header().String())), " ")
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// addresses are the data of A and AAAA records.
func addresses(list ...string) string {
	slices.Sort(list)
	return strings.Join(list, ", ")
}

// want says what a response is to be; what is left empty is not looked at, and "-" is
// nothing.
type want struct {
	status, flags, answer, ede string
}

// check holds a response to what it is to be.
func (r *reply) check(t *testing.T, w want) {
	t.Helper()
	for _, c := range []struct{ what, got, want string }{
		{"status", r.Status, w.status}, {"flags", r.Flags, w.flags}, {"answer", data(r.Answer), w.answer},
	} {
		if c.want == "-" {
			c.want = ""
		} else if c.want == "" {
			continue
		}
		if c.got != c.want {
			t.Errorf("%s is %q, want %q in\n%s", c.what, c.got, c.want, r.Text)
		}
	}
	if w.ede == "-" && r.EDE != "" || w.ede != "-" && !strings.HasPrefix(r.EDE, w.ede) {
		t.Errorf("the Extended DNS Error is %q, want %q in\n%s", r.EDE, w.ede, r.Text)
	}
}

// has wants a pattern to be in what the tool printed.
func (r *reply) has(t *testing.T, pattern string) {
	t.Helper()
	if !regexp.MustCompile(pattern).MatchString(r.Text) {
		t.Errorf("no %s in\n%s", pattern, r.Text)
	}
}

// soa is the SOA record of a section.
func soa(t *testing.T, records []dns.RR) *dns.SOA {
	t.Helper()
	for _, rr := range records {
		if s, ok := rr.(*dns.SOA); ok {
			return s
		}
	}
	t.Fatalf("no SOA record in %v", records)
	return nil
}
