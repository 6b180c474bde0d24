// Package webhooktest verifies the signatures of package
// [github.com/pawl-go/pawl/transport/webhook] with the senders' own libraries, and the reverse. It
// is a separate module so that no other module needs those libraries.
//
// Three formats have no such library. The released Go library of Standard Webhooks (v0.0.1) has
// only v1, so v1a is tested against the published vector. Shopify's Go libraries are not Shopify's
// own, and Mux has none. Shopify and Mux are tested against the form that their pages describe.
package webhooktest
