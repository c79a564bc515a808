package dns

import (
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/programs/programstest"
)

// raw runs a tool as it is, for what ends without a response that can be read.
func (l *lab) raw(t *testing.T, from interface{ String() string }, tool string, args ...string) (string, error) {
	t.Helper()
	binary := programstest.Path(t, tool)
	args = slices.Concat([]string{"-b", from.String(), "-p", port, "@" + server.String()}, args)
	return output(l.callers, exec.CommandContext(meshtest.Within(t, limit), binary, args...))
}

// TestOneConnectionForMany: RFC 7766 has a connection stay for the next question.
func TestOneConnectionForMany(t *testing.T) {
	l := sharedLab(t)
	var questions []string
	for range 10 {
		questions = append(questions, "orders.shop."+zone, "A", "stock.shop."+zone, "A", "nowhere.shop."+zone, "A")
	}
	for tool, how := range map[string][]string{"kdig": {"+tcp", "+keepopen"}, "dig": {"+tcp", "+keepopen"}} {
		all, err := l.run(t.Context(), checkout, tool, append(slices.Clone(how), questions...)...)
		if err != nil || len(all) != 30 {
			t.Fatalf("%s: %d responses, %v", tool, len(all), err)
		}
		for i, r := range all {
			r.check(t, []want{{status: "NOERROR", answer: orders}, {status: "NOERROR", answer: "10.77.2.11, 10.77.2.12"}, {status: "NXDOMAIN", ede: r.EDE}}[i%3])
		}
	}
}

// TestTLS: RFC 7858, with the certificate checked (RFC 8310).
func TestTLS(t *testing.T) {
	l := sharedLab(t)
	host := "ns." + strings.TrimSuffix(zone, ".")
	strict := []string{"-p", tlsPort, "+tls-ca=" + l.ca, "+tls-hostname=" + host}
	l.by(t, "kdig", checkout, append(strict, "orders.shop."+zone, "A")...).check(t, want{status: "NOERROR", answer: orders})
	l.by(t, "kdig", stranger, append(strict, "orders.shop."+zone, "A", "+edns")...).check(t, want{status: "NXDOMAIN", ede: "18"})
	l.dig(t, checkout, "-p", tlsPort, "+tls-ca="+l.ca, "+tls-hostname="+host, "many.shop."+zone, "A").check(t, want{status: "NOERROR"})
	r, err := l.run(t.Context(), checkout, "kdig", append(strict, "+keepopen", "orders.shop."+zone, "A", "many.shop."+zone, "A", "stock.shop."+zone, "A")...)
	if err != nil || len(r) != 3 || len(r[1].Answer) != 120 {
		t.Errorf("three questions of one connection: %d responses, %v", len(r), err)
	}
	if out, err := l.raw(t, checkout, "kdig", "-p", tlsPort, "+tls-ca="+l.ca, "+tls-hostname=other.example", "+retry=0", "orders.shop."+zone); err == nil && strings.Contains(out, "NOERROR") {
		t.Errorf("another host's certificate is taken:\n%s", out)
	}
	// In the clear there is nothing to be had there.
	if out, err := l.raw(t, checkout, "kdig", "-p", tlsPort, "+tcp", "+retry=0", "+timeout=5", "orders.shop."+zone); err == nil && strings.Contains(out, "NOERROR") {
		t.Errorf("it is answered in the clear:\n%s", out)
	}
}

// TestManyAtOnce: questions from several programs at a time each have their own answer.
func TestManyAtOnce(t *testing.T) {
	l := sharedLab(t)
	done := make(chan string)
	const programs = 6
	for i := range programs {
		go func() {
			var questions []string
			for n := range 50 {
				questions = append(questions, strconv.Itoa(n)+".stock.shop.east."+zone, "A")
			}
			from, how := checkout, []string{"+notcp"}
			if i%2 == 1 {
				from, how = stranger, []string{"+tcp", "+keepopen"}
			}
			all, err := l.run(t.Context(), from, "kdig", append(how, questions...)...)
			for n, r := range all {
				if name := strconv.Itoa(n) + ".stock.shop.east." + zone; data(r.Answer) != "10.77.2.11, 10.77.2.12" || r.Answer[0].Header().Name != name {
					done <- name + ": " + r.Text
					return
				}
			}
			if err != nil || len(all) != 50 {
				done <- fmt.Sprintf("%d responses, %v", len(all), err)
				return
			}
			done <- ""
		}()
	}
	for range programs {
		if wrong := <-done; wrong != "" {
			t.Error(wrong)
		}
	}
}
