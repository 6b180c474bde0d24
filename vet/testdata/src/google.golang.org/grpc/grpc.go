// Package grpc has the names that the test data uses.
package grpc

type CallOption interface{ before() }
