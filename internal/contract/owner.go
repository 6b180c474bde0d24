package contract

import "github.com/pawl-go/pawl"

// OwnerOf returns an owner of steps for names of any length. The kind is a prefix, so owners of two
// kinds never have the same name.
func OwnerOf(kind, scope, key string, jobID int64) pawl.Owner {
	o := pawl.Owner{Scope: kind + "/" + scope, Key: key, JobID: jobID}
	if len(o.Scope) > pawl.MaxScope {
		o.Scope = pawl.Key(kind, scope)
	}
	if len(o.Key) > pawl.MaxKey {
		o.Key = pawl.Key(key)
	}
	return o
}
