// Package ranges checks the numbers and durations of configurations.
package ranges

import (
	"fmt"
	"reflect"
	"slices"
)

// NotNegative returns an error that names the first exported number or duration of config that is
// below 0, or nil. It looks into structs, also in slices. It skips the fields named in signed,
// whose documentation gives a negative value a meaning.
func NotNegative(config any, signed ...string) error {
	return notNegative(reflect.ValueOf(config), "", signed)
}

func notNegative(v reflect.Value, prefix string, signed []string) error {
	of := v.Type()
	for i := range of.NumField() {
		f, value := of.Field(i), v.Field(i)
		if !f.IsExported() || slices.Contains(signed, f.Name) {
			continue
		}
		if err := one(value, prefix+f.Name, signed); err != nil {
			return err
		}
	}
	return nil
}

func one(v reflect.Value, name string, signed []string) error {
	switch v.Kind() {
	case reflect.Int, reflect.Int32, reflect.Int64:
		if v.Int() < 0 {
			return fmt.Errorf("the %s must not be negative, it is %v: leave it out for the default", name, v)
		}
	case reflect.Float64:
		if v.Float() < 0 {
			return fmt.Errorf("the %s must not be negative, it is %v: leave it out for the default", name, v)
		}
	case reflect.Struct:
		return notNegative(v, name+".", signed)
	case reflect.Slice:
		if v.Type().Elem().Kind() != reflect.Struct {
			return nil
		}
		for i := range v.Len() {
			if err := one(v.Index(i), fmt.Sprintf("%s[%d]", name, i), signed); err != nil {
				return err
			}
		}
	}
	return nil
}
