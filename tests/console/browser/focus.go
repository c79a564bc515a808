package browser

import (
	"bytes"
	"image"
	"image/png"
	"math"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/dom"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// Focus is what has the keyboard.
type Focus struct {
	Element
	Tag string // such as "a"; "body" when nothing has the keyboard

	// Visible tells that people see it: without the focus, pixels at the element's edge have
	// another colour, by a contrast of 3:1, as many as half of a line around it.
	Visible bool
}

// Focus tells what has the keyboard. To see whether that shows, it takes the focus away and gives
// it back, which the page's scripts notice.
func (p *Page) Focus() Focus {
	p.t.Helper()
	active := call(p, runtime.Evaluate, runtime.EvaluateParams{Expression: "document.activeElement"}).Result.ObjectID
	node := call(p, dom.DescribeNode, dom.DescribeNodeParams{ObjectID: active}).Node
	focus := Focus{Tag: node.LocalName, Element: Element{id: node.BackendNodeID}}
	if focus.Tag == "body" {
		return focus
	}
	tree := accessibility.GetPartialAXTreeParams{ObjectID: active, FetchRelatives: new(false)}
	for _, node := range call(p, accessibility.GetPartialAXTree, tree).Nodes {
		focus.Role, focus.Name = word(node.Role), word(node.Name)
	}
	focus.Visible = p.focusShows(focus.id)
	return focus
}

// box is a place in the viewport.
type box struct{ X, Y, Width, Height float64 }

// focusShows compares the element with itself without the focus.
func (p *Page) focusShows(id cdp.BackendNodeID) bool {
	p.t.Helper()
	place := Evaluate[box](p, `(() => { const b = document.activeElement.getBoundingClientRect(); return {X: b.x, Y: b.y, Width: b.width, Height: b.height} })()`)
	with := still(p)
	Evaluate[bool](p, "document.activeElement.blur() || true")
	without := still(p)
	call(p, dom.Focus, dom.FocusParams{BackendNodeID: id})
	return edgeDiffers(with, without, place)
}

// still is the viewport as it is shown, with what moves at its end.
func still(p *Page) image.Image {
	p.t.Helper()
	Evaluate[bool](p, "document.getAnimations().forEach(a => { try { a.finish() } catch {} }) || true") // endless ones go on
	shown, err := png.Decode(bytes.NewReader(run(p, "screenshot", chromedp.CaptureScreenshot())))
	if err != nil {
		p.t.Fatal(err)
	}
	return shown
}

// An element's edge is this far from its box at most, inside and outside, in pixels.
const (
	edgeInside  = 4
	edgeOutside = 6
)

// edgeDiffers tells whether as many pixels at the edge of a place differ as half of a line around
// it has. What is inside is left out: there a cursor blinks, or text is selected.
func edgeDiffers(one, other image.Image, place box) bool {
	left, top := int(math.Floor(place.X)), int(math.Floor(place.Y))
	right, bottom := int(math.Ceil(place.X+place.Width)), int(math.Ceil(place.Y+place.Height))
	outer := image.Rect(left-edgeOutside, top-edgeOutside, right+edgeOutside, bottom+edgeOutside).Intersect(one.Bounds())
	inner := image.Rectangle{image.Pt(left+edgeInside, top+edgeInside), image.Pt(right-edgeInside, bottom-edgeInside)}
	differ := 0
	for y := outer.Min.Y; y < outer.Max.Y; y++ {
		for x := outer.Min.X; x < outer.Max.X; x++ {
			if !image.Pt(x, y).In(inner) && contrast(one, other, x, y) >= 3 {
				differ++
			}
		}
	}
	seen := image.Rect(left, top, right, bottom).Intersect(one.Bounds())
	return differ > 0 && differ >= seen.Dx()+seen.Dy()
}

// contrast is that of WCAG, between a pixel of two images.
func contrast(one, other image.Image, x, y int) float64 {
	a, b := luminance(one, x, y), luminance(other, x, y)
	return (max(a, b) + 0.05) / (min(a, b) + 0.05)
}

func luminance(i image.Image, x, y int) float64 {
	red, green, blue, _ := i.At(x, y).RGBA()
	linear := func(c uint32) float64 {
		v := float64(c) / 0xffff
		if v <= 0.04045 {
			return v / 12.92
		}
		return math.Pow((v+0.055)/1.055, 2.4)
	}
	return 0.2126*linear(red) + 0.7152*linear(green) + 0.0722*linear(blue)
}
