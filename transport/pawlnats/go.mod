module github.com/pawl-go/pawl/transport/pawlnats

go 1.25.0
