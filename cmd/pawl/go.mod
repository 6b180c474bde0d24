module github.com/pawl-go/pawl/cmd/pawl

go 1.25.0

require github.com/pawl-go/pawl v0.0.0

replace github.com/pawl-go/pawl => ../..
