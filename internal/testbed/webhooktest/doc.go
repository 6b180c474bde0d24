// Package webhooktest asks the senders' own libraries whether they understand what package
// [github.com/pawl-go/pawl/transport/webhook] signs, and has it verify what they sign. It is a module of its own so that
// nobody else needs those libraries.
//
// There is no oracle for v1a of Standard Webhooks, whose released Go library (v0.0.1) has only v1, for Shopify, whose Go
// libraries are not Shopify's, and for Mux. v1a is held to the published vector, Shopify and Mux to the form that their pages
// describe.
package webhooktest
