package sqstest

import (
	"crypto/md5"
	"encoding/binary"
	"encoding/hex"
	"maps"
	"slices"
	"strings"
)

func bodyMD5(body string) string {
	sum := md5.Sum([]byte(body))
	return hex.EncodeToString(sum[:])
}

// attributesMD5 follows "Calculating the MD5 message digest for message attributes" of the
// developer guide. Names are sorted. Name, type and value each follow a four-octet length, and a
// transport octet precedes the value. Without attributes there is no digest.
func attributesMD5(attributes map[string]attribute) string {
	if len(attributes) == 0 {
		return ""
	}
	digest := md5.New()
	write := func(value string) {
		var length [4]byte
		binary.BigEndian.PutUint32(length[:], uint32(len(value)))
		digest.Write(length[:])
		digest.Write([]byte(value))
	}
	for _, name := range slices.Sorted(maps.Keys(attributes)) {
		a := attributes[name]
		write(name)
		write(a.DataType)
		if strings.HasPrefix(a.DataType, "Binary") {
			digest.Write([]byte{2})
		} else {
			digest.Write([]byte{1})
		}
		write(a.value())
	}
	return hex.EncodeToString(digest.Sum(nil))
}
