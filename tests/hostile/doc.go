// Package hostile attacks Isthmus as an outsider, a compromised sidecar, a hostile peer or a
// tenant would: "isthmus serve" as a black box, with real daprd and Sentry where a sidecar is
// part of the attack. docs/explanation/threat-model.md says what each test holds.
package hostile
