// Package docs holds the documents to the code: tests only.
//
//	links_test.go      relative links resolve, headings included
//	reference_test.go  functions, options, events, fault points, fields and traps are all on their pages
//	layers_test.go     imports point downward, as ARCHITECTURE.md says
package docs
