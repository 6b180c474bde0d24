package pawlrabbitmq_test

import (
	"context"
	"errors"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/transport/pawlrabbitmq"
	"github.com/pawl-go/pawl/transport/transporttest"
)

func TestAcceptance_Quorum(t *testing.T) {
	t.Parallel()
	transporttest.Run(t, broker(sharedServer(t), quorum(), pawlrabbitmq.Config{}))
}

func TestAcceptance_SingleActiveConsumer(t *testing.T) {
	t.Parallel()
	transporttest.Run(t, broker(sharedServer(t), single(), pawlrabbitmq.Config{OrderingKey: pawlrabbitmq.ByHeader("account")}))
}

func TestAcceptance_Classic(t *testing.T) {
	t.Parallel()
	transporttest.Run(t, broker(sharedServer(t), nil, pawlrabbitmq.Config{AllowClassic: true}))
}
