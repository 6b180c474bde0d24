// Package owner names the owners of steps.
package owner

import "github.com/pawl-go/pawl"

// Of makes an owner of names of any length, with a prefix that keeps kinds of owners apart.
func Of(kind, scope, key string, jobID int64) pawl.Owner {
	o := pawl.Owner{Scope: kind + "/" + scope, Key: key, JobID: jobID}
	if len(o.Scope) > pawl.MaxScope {
		o.Scope = pawl.Key(kind, scope)
	}
	if len(o.Key) > pawl.MaxKey {
		o.Key = pawl.Key(key)
	}
	return o
}
