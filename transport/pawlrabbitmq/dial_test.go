package pawlrabbitmq_test

import (
	"strings"
	"testing"

	"github.com/pawl-go/pawl/transport/pawlrabbitmq"
)

// No error shows the password of the address.
func TestURL_KeepsThePassword(t *testing.T) {
	t.Parallel()
	for _, address := range []string{
		"amqp://user:s3cret@localhost:port/", "amqp://user:s3cret@ho st:5672/", "amqp://user:s3cr%zzet@localhost:5672/",
		"http://user:s3cret@localhost:1/", "amqp://user:s3cret@localhost:1/?cacertfile=/nonexistent", "amqps://user:s3cret@localhost:1/",
		"amqp://user:s3cret/x@localhost:5672/", "amqp://user:s3cret#1@localhost:5672/vhost", "amqp://user:s3cret@localhost:1/?heartbeat=no",
	} {
		_, err := pawlrabbitmq.URL(address)()
		if err == nil || strings.Contains(err.Error(), "s3cr") {
			t.Errorf("%s: %v", address, err)
		}
	}
}
