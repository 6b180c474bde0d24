package pawlkafka

import (
	"encoding/hex"
	"encoding/json"
)

// topicID is the id that a cluster gives a topic. One that is deleted and made again has another; its offsets begin anew.
type topicID [16]byte

func (id topicID) String() string { return hex.EncodeToString(id[:]) }

// short is enough to tell two topics of one name apart, for people.
func (id topicID) short() string { return id.String()[:8] }

func (id topicID) known() bool { return id != topicID{} }

// metadata is the text beside each committed offset. Kafka keeps up to 4,096 octets (offset.metadata.max.bytes).
type metadata struct {
	Version int    `json:"pawl"`
	Taken   int    `json:"taken"`           // see partition.taken
	Topic   string `json:"topic,omitempty"` // the id of the topic that the offset is of
}

const metadataVersion = 1

func (m metadata) text() string {
	m.Version = metadataVersion
	text, _ := json.Marshal(m) // of numbers and hexadecimal digits: cannot fail
	return string(text)
}

// readMetadata reads what another member wrote. What another program wrote counts as nothing.
func readMetadata(text *string) (m metadata) {
	if text == nil || json.Unmarshal([]byte(*text), &m) != nil || m.Version != metadataVersion || m.Taken < 0 {
		return metadata{}
	}
	return m
}
