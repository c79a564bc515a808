package dns

import (
	"slices"
	"strings"
	"testing"
)

const said = `DNS Performance Testing Tool
Version 2.10.0

[Status] Command line: dnsperf -s 127.0.0.1 -Q 10000 -v
> NOERROR app-00001.shop.isthmus.internal A 0.000123
> NOERROR app-00002.shop.isthmus.internal A 0.000045
[Status] Testing complete (time limit)

Statistics:

  Queries sent:         20001
  Queries completed:    20000 (100.00%)
  Queries lost:         1 (0.00%)

  Response codes:       NOERROR 20000 (100.00%)
  Average packet size:  request 49, response 65
  Run time (s):         2.000150
  Queries per second:   9999.250056
`

func TestWhatDnsperfSays(t *testing.T) {
	d, err := readDnsperf(said)
	if err != nil {
		t.Fatal(err)
	}
	if d.completed != 20000 || d.lost != 1 || d.rate != 9999.250056 || !slices.Equal(d.latencies, []float64{0.000123, 0.000045}) {
		t.Errorf("read %+v", d)
	}
}

func TestAnswersThatAreNoAddressesAreAnError(t *testing.T) {
	for _, codes := range []string{"NXDOMAIN 20000 (100.00%)", "NOERROR 19999 (99.99%), SERVFAIL 1 (0.01%)"} {
		if _, err := readDnsperf(strings.Replace(said, "NOERROR 20000 (100.00%)", codes, 1)); err == nil {
			t.Errorf("%s: no error", codes)
		}
	}
	if _, err := readDnsperf(""); err == nil {
		t.Error("nothing was said: no error")
	}
}
