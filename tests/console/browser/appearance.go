package browser

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// Viewport sets how large the page is shown, in CSS pixels.
func (p *Page) Viewport(width, height int64) {
	p.t.Helper()
	call(p, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: height, DeviceScaleFactor: 1})
}

// Prefer sets what the person prefers: "prefers-color-scheme" as "dark" or "light",
// "prefers-reduced-motion" as "reduce". What was set before stays; an empty value takes it back.
func (p *Page) Prefer(feature, value string) {
	p.t.Helper()
	p.media[feature] = value
	var features []*emulation.MediaFeature
	for _, name := range slices.Sorted(maps.Keys(p.media)) {
		features = append(features, &emulation.MediaFeature{Name: name, Value: p.media[name]})
	}
	call(p, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: features})
}

// WithoutScripts has pages that are opened from now on run no script.
func (p *Page) WithoutScripts() {
	p.t.Helper()
	p.scriptless = true
	call(p, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
}

// Screenshot keeps a picture of the whole page in the folder of this test below ISTHMUS_ARTEFACTS,
// by default in the test's own, which go test -artifacts keeps. It returns the file.
func (p *Page) Screenshot(name string) string {
	p.t.Helper()
	dir := p.t.ArtifactDir()
	if root := artefacts(); root != "" {
		dir = filepath.Join(root, strings.ReplaceAll(p.t.Name(), "/", "."))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			p.t.Fatal(err)
		}
	}
	file := filepath.Join(dir, name+".png")
	if err := os.WriteFile(file, run(p, "screenshot", chromedp.FullScreenshot(100)), 0o644); err != nil {
		p.t.Fatal(err)
	}
	return file
}

func artefacts() string { return os.Getenv("ISTHMUS_ARTEFACTS") }

// Keep takes a picture for people to look at, if anybody is to: it is a second's work.
func (p *Page) Keep(name string) {
	p.t.Helper()
	if artefacts() != "" || flag.Lookup("test.artifacts").Value.String() == "true" || p.t.Failed() {
		p.Screenshot(name)
	}
}

// Everywhere has everybody able to read a page: on a telephone and a screen, in light and dark. It takes
// pictures, and may be given more tags of axe-core.
func (p *Page) Everywhere(name string, tags ...string) {
	p.t.Helper()
	for _, scheme := range []string{"light", "dark"} {
		p.Prefer("prefers-color-scheme", scheme)
		for _, width := range []int64{320, 1440} {
			p.Viewport(width, 900)
			for _, v := range p.Axe(tags...) {
				p.t.Errorf("%s, %s, %d px: %s", name, scheme, width, v)
			}
			if wide := p.Overflow(); len(wide) > 0 {
				p.t.Errorf("%s, %s, %d px: it scrolls sideways: %v", name, scheme, width, wide)
			}
			p.Keep(fmt.Sprintf("%s-%s-%d", name, scheme, width))
		}
	}
}

// Overflow is what makes the page scroll sideways: elements that are wider than it is shown, the
// outermost first. It is empty where the page does not scroll sideways.
func (p *Page) Overflow() []string {
	p.t.Helper()
	return Evaluate[[]string](p, `(() => {
		const page = document.scrollingElement
		if (page.scrollWidth <= innerWidth) return []
		const wide = [...document.querySelectorAll('body *')].filter(e => e.getBoundingClientRect().right + scrollX > innerWidth)
		const name = e => e.tagName.toLowerCase() + (e.id && '#' + e.id) + [...e.classList].map(c => '.' + c).join('')
		return ['the page: ' + page.scrollWidth + ' of ' + innerWidth + ' px', ...wide.slice(0, 10).map(name)]
	})()`)
}
