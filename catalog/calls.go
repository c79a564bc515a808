package catalog

import (
	"fmt"
	"iter"
	"slices"
	"strings"
)

// Calls are the apps that an instance declares to call, as "namespace/app-id", sorted and separated
// by commas. Those that name the same apps are equal.
type Calls string

// Bounds of what one instance declares.
const (
	MaxCalls     = 100
	MaxCallsText = 16 << 10
)

// ParseCalls reads what an instance in a namespace declares: app-ids separated by commas, each with
// ".namespace" after it where that is another, such as "orders, ledger.finance".
func ParseCalls(namespace, text string) (Calls, error) {
	if len(text) > MaxCallsText {
		return "", fmt.Errorf("%d bytes are more than %d; write an AppEndpoints object", len(text), MaxCallsText)
	}
	return declared(strings.Split(text, ","), func(item string) App {
		id, of, _ := strings.Cut(strings.TrimSpace(item), ".")
		if !strings.Contains(item, ".") {
			of = namespace
		}
		return App{of, id}
	})
}

// Check checks what another process declares.
func (c Calls) Check() error {
	if c == "" {
		return nil
	}
	if len(c) > MaxCallsText {
		return fmt.Errorf("%d bytes are more than %d", len(c), MaxCallsText)
	}
	again, err := declared(strings.Split(string(c), ","), func(item string) App {
		namespace, id, _ := strings.Cut(item, "/")
		return App{namespace, id}
	})
	if err == nil && again != c {
		err = fmt.Errorf("%.100q is not in order; want %.100q", string(c), string(again))
	}
	return err
}

func declared(items []string, app func(item string) App) (Calls, error) {
	all := make([]string, 0, len(items))
	for _, item := range items {
		a := app(item)
		if err := a.CheckHost(); err != nil {
			return "", fmt.Errorf("%.200q: %w; write app-ids such as \"orders, ledger.finance\"", strings.TrimSpace(item), err)
		}
		all = append(all, a.String())
	}
	slices.Sort(all)
	if all = slices.Compact(all); len(all) > MaxCalls {
		return "", fmt.Errorf("%d apps are more than %d; write an AppEndpoints object", len(all), MaxCalls)
	}
	return Calls(strings.Join(all, ",")), nil
}

// Apps are the declared apps in their order.
func (c Calls) Apps() iter.Seq[App] {
	return func(yield func(App) bool) {
		if c == "" {
			return
		}
		for item := range strings.SplitSeq(string(c), ",") {
			namespace, id, _ := strings.Cut(item, "/")
			if !yield(App{namespace, id}) {
				return
			}
		}
	}
}
