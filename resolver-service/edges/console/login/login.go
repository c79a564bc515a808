package login

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/isthmus-mesh/isthmus/internal/settings"
)

// tellOperator ends a page about what the person can't mend.
const tellOperator = "The log of the service has the details. Try again; if it fails again, tell whoever runs Isthmus."

// begin sends a person to the provider.
func (l *login) begin(w http.ResponseWriter, r *http.Request) {
	p, err := l.provider()
	if err != nil {
		l.failed(w, r, http.StatusBadGateway, "discovery", err, "The console asked "+strings.TrimSuffix(l.config.Issuer, "/")+
			"/.well-known/openid-configuration and got no usable answer. It must reach the provider, trust its certificate, "+
			"and know its issuer exactly.")
		return
	}
	client, err := l.oauth(p)
	if err != nil {
		l.failed(w, r, http.StatusInternalServerError, "client", err, "The console can't read its secret for the provider.")
		return
	}
	a := attempt{verifier: oauth2.GenerateVerifier(), nonce: random(), to: returnPath(r.URL.Query().Get("to"))}
	state := l.attempts.add(a)
	http.SetCookie(w, l.cookie("login", state, http.SameSiteLaxMode, int(loginLife.Seconds())))
	http.Redirect(w, r, client.AuthCodeURL(state, oidc.Nonce(a.nonce), oauth2.S256ChallengeOption(a.verifier)), http.StatusSeeOther)
}

// finish takes a person from the provider, and lets it in if one of its groups may read.
func (l *login) finish(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	a, ok := l.attempt(w, r, q.Get("state"))
	if !ok {
		l.failed(w, r, http.StatusForbidden, "state", errors.New("no such attempt of this browser"), "It took more than "+
			"10 minutes, was used already, or another tab has begun anew. If that tab is in, you are in here, too.")
		return
	}
	if said := q.Get("error"); said != "" {
		l.failed(w, r, http.StatusForbidden, "provider", fmt.Errorf("the provider said %q", clip(said)),
			fmt.Sprintf("The provider refused it, and said %q.", clip(said)))
		return
	}
	claims, err := l.claims(r.Context(), q.Get("code"), a)
	if err != nil {
		l.failed(w, r, http.StatusForbidden, "token", err, "The provider's answer does not prove to this console who you are.")
		return
	}
	person, err := l.config.person(claims)
	if err != nil {
		l.failed(w, r, http.StatusForbidden, "name", err, "The provider's answer has no name that the console can use.")
		return
	}
	groups := texts(claims[l.config.GroupsClaim])
	rights := l.config.Groups.rights(groups)
	if len(rights) == 0 {
		l.noRight(w, r, person, groups)
		return
	}
	l.let(w, r, Session{Person: person, Rights: rights})
	l.log.Info("console: signed in", "person", person, "address", r.RemoteAddr, "by", l.config.Issuer,
		"subject", claims["sub"], "rights", rights)
	onward(w, a.to)
}

// attempt is the attempt that a state belongs to, if this browser has begun it. It works once.
func (l *login) attempt(w http.ResponseWriter, r *http.Request, state string) (attempt, bool) {
	cookie, err := r.Cookie(l.cookieName("login"))
	if err != nil || subtle.ConstantTimeCompare([]byte(cookie.Value), []byte(state)) != 1 {
		return attempt{}, false
	}
	http.SetCookie(w, l.cookie("login", "", http.SameSiteLaxMode, -1))
	return l.attempts.take(state)
}

// claims exchanges a code for what the provider says of a person, and checks that it says so to this
// console, about this attempt. Errors hold nothing of the provider's answer that could be a secret.
func (l *login) claims(ctx context.Context, code string, a attempt) (map[string]any, error) {
	ctx, cancel := context.WithTimeout(oidc.ClientContext(ctx, l.client), askingLimit)
	defer cancel()
	p, err := l.provider()
	if err != nil {
		return nil, fmt.Errorf("ask the provider about itself: %w", err)
	}
	client, err := l.oauth(p)
	if err != nil {
		return nil, err
	}
	token, err := client.Exchange(ctx, code, oauth2.VerifierOption(a.verifier))
	if refused := (*oauth2.RetrieveError)(nil); errors.As(err, &refused) {
		return nil, fmt.Errorf("exchange the code: the provider said %s, %q", refused.Response.Status, clip(refused.ErrorCode))
	} else if err != nil {
		return nil, fmt.Errorf("exchange the code: %w", err)
	}
	raw, _ := token.Extra("id_token").(string)
	if raw == "" {
		return nil, errors.New("exchange the code: the answer has no ID token; the client must be one of OpenID Connect")
	}
	id, err := p.VerifierContext(ctx, &oidc.Config{ClientID: l.config.ClientID}).Verify(ctx, raw)
	if err != nil {
		return nil, fmt.Errorf("check the ID token: %w", err)
	}
	if subtle.ConstantTimeCompare([]byte(id.Nonce), []byte(a.nonce)) != 1 {
		return nil, errors.New("check the ID token: it is for another attempt to sign in; its nonce differs")
	}
	var claims map[string]any
	if err := id.Claims(&claims); err != nil {
		return nil, errors.New("check the ID token: its claims are not an object")
	}
	if azp, ok := claims["azp"]; ok && azp != l.config.ClientID {
		return nil, errors.New("check the ID token: it is for another client; azp differs")
	}
	return claims, nil
}

// failed answers a login that can't go on, and says in the log why.
func (l *login) failed(w http.ResponseWriter, r *http.Request, status int, reason string, err error, what string) {
	l.refusals.Warn("login "+reason, "console: a login failed", "reason", reason, "address", r.RemoteAddr,
		"issuer", l.config.Issuer, "err", clip(settings.Hide(err.Error())))
	show(w, status, page{Title: "The sign-in failed", Text: []string{what, tellOperator}, To: "/", Link: "To the console"})
}

// noRight answers a person who has no right here.
func (l *login) noRight(w http.ResponseWriter, r *http.Request, person string, groups []string) {
	named := groups[:min(len(groups), mostNamed)]
	l.refusals.Warn("login groups", "console: a login failed", "reason", "groups", "person", person, "address", r.RemoteAddr,
		"issuer", l.config.Issuer, "groups", named, "of", len(groups))
	has := fmt.Sprintf("The provider names no group of yours in the claim %q.", l.config.GroupsClaim)
	if len(groups) > 0 {
		has = fmt.Sprintf("The provider says that you are in %s.", strings.Join(named, ", "))
	}
	if more := len(groups) - len(named); more > 0 {
		has += fmt.Sprintf(" It names %d more.", more)
	}
	show(w, http.StatusForbidden, page{Title: "You may not see this console", To: "/login", Link: "Sign in again", Text: []string{
		fmt.Sprintf("You are signed in as %s. %s", person, has),
		"None of them may read here. Ask whoever runs Isthmus to let one of your groups read. To be somebody else, sign out at your provider first."}})
}
