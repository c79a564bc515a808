package login

import (
	"context"
	"net/http"
)

// Policy is the Content-Security-Policy of every answer: scripts, styles and images come from the
// console itself, nothing stands inline, and no other site may frame it.
const Policy = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// page is a page of the gate's own.
type page struct {
	Title    string
	Text     []string // paragraphs
	To, Link string   // what to do next: a path, and its words
	Onward   string   // a path that the browser goes to by itself
}

// show answers by a page. Its address may hold a key or a code, so it is no referrer.
func show(w http.ResponseWriter, status int, p page) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Referrer-Policy", "no-referrer")
	w.WriteHeader(status)
	_ = p.shown().Render(context.Background(), w) // an error here is the browser's that went away
}

// onward answers by a page that goes on to a path. A redirect would not do: a browser that comes from
// another site does not send SameSite=Strict cookies with it.
func onward(w http.ResponseWriter, path string) {
	show(w, http.StatusOK, page{Title: "Isthmus console", To: path, Link: "Go on", Onward: path})
}

// secure sets the headers of every answer. The referrer stays within the console. With
// "no-referrer", browsers would send "Origin: null" with the console's own forms.
func (g *Gate) secure(h http.Header) {
	h.Set("Content-Security-Policy", Policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	if g.tls() && g.url.Port() == "" { // it holds for all ports of the name, so only the owner of the name says it
		h.Set("Strict-Transport-Security", "max-age=31536000")
	}
}
