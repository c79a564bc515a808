// Package console holds whole tests of the console: a real Chromium, real servers, and for signing
// in a real provider of OpenID Connect.
package console
