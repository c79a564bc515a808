package servers

import (
	"errors"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
)

// ErrNotSignedIn is returned, wrapped, when a Dex does not know a person by that password.
var ErrNotSignedIn = errors.New("not signed in")

// dexForm finds where a Dex's page has a password sent.
var dexForm = regexp.MustCompile(`<form method="post" action="([^"]+)"`)

// SignIn signs a person in to an application that sends people to this URL of a Dex, as a browser
// does: it fills in the form. It returns where the Dex sends the person then. The client gets
// cookies of its own.
func SignIn(client *http.Client, authorize string, person DexPerson) (*url.URL, error) {
	at, err := url.Parse(authorize)
	if err != nil {
		return nil, fmt.Errorf("sign in: %w", err)
	}
	visitor := *client
	visitor.Jar, _ = cookiejar.New(nil) // never fails
	visitor.CheckRedirect = func(r *http.Request, _ []*http.Request) error {
		if r.URL.Host != at.Host {
			return http.ErrUseLastResponse
		}
		return nil
	}
	form, text, err := read(visitor.Get(authorize))
	if err != nil {
		return nil, fmt.Errorf("sign in at %s: %w", authorize, err)
	}
	action := dexForm.FindStringSubmatch(text)
	if action == nil {
		return nil, fmt.Errorf("sign in at %s: it answers %s and shows no form: %s", form.Request.URL, form.Status, text)
	}
	post, err := form.Request.URL.Parse(html.UnescapeString(action[1]))
	if err != nil {
		return nil, fmt.Errorf("sign in at %s: %w", form.Request.URL, err)
	}
	answer, text, err := read(visitor.PostForm(post.String(), url.Values{"login": {person.Email}, "password": {person.Password}}))
	if err != nil {
		return nil, fmt.Errorf("sign in at %s: %w", post, err)
	}
	to, err := answer.Location()
	if err != nil {
		return nil, fmt.Errorf("sign in as %s at %s: %w; it answers %s: %s", person.Email, post, ErrNotSignedIn, answer.Status, text)
	}
	return to, nil
}

// read reads an answer to its end.
func read(res *http.Response, err error) (*http.Response, string, error) {
	if err != nil {
		return nil, "", err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return res, string(text), err
}
