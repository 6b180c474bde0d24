package main

import (
	"testing"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/pawltest"
)

// go vet compiles this test, which needs the dependencies of package pawltest. It is not run here.
func TestPlace_WritesAnOrderOnce(t *testing.T) {
	pawltest.Twice(t, pawltest.HandlerTest{
		Schema:   []string{"create table orders (id text, cents bigint)"},
		Handler:  consumer.HandleTx(place),
		Delivery: pawl.Delivery{Key: "m-1", Payload: []byte(`{"id":"o-1","cents":1250}`)},
	})
}
