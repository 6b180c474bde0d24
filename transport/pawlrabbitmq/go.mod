module github.com/pawl-go/pawl/transport/pawlrabbitmq

go 1.25.0
