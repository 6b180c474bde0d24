module github.com/pawl-go/pawl/transport/pawlkafka

go 1.25.0
