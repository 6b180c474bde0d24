package pawlkafka

import (
	"encoding/hex"
	"encoding/json"
)

// topicID is the cluster's id of a topic. A recreated topic has another id, and new offsets.
type topicID [16]byte

func (id topicID) String() string { return hex.EncodeToString(id[:]) }

// short shortens the id for people, who must tell apart only topics of one name.
func (id topicID) short() string { return id.String()[:8] }

func (id topicID) isSet() bool { return id != topicID{} }

// metadata is the text stored with each committed offset. Kafka's default limit is 4,096 bytes.
type metadata struct {
	Version int    `json:"pawl"`
	Taken   int    `json:"taken"`           // see partition.taken
	Topic   string `json:"topic,omitempty"` // the id of the offset's topic
}

const metadataVersion = 1

func (m metadata) text() string {
	m.Version = metadataVersion
	text, _ := json.Marshal(m) // numbers and hexadecimal digits cannot fail
	return string(text)
}

// readMetadata parses what another member wrote. Metadata of other programs is ignored.
func readMetadata(text *string) (m metadata) {
	if text == nil || json.Unmarshal([]byte(*text), &m) != nil || m.Version != metadataVersion || m.Taken < 0 {
		return metadata{}
	}
	return m
}
