package brokers

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// A metadataResponse is a broker's view of its cluster.
type metadataResponse struct {
	brokers []int
	topic   int16 // error code of the requested topic; 0 if it exists
}

// kafkaMetadata sends a Metadata request of version 4, encoded by hand because this module has no
// Kafka client. If topic is "", the request names none.
func kafkaMetadata(ctx context.Context, addr, topic string) (a metadataResponse, err error) {
	const metadata, version, correlation = 3, 4, 7
	body := binary.BigEndian.AppendUint16(nil, metadata)
	body = binary.BigEndian.AppendUint16(body, version)
	body = binary.BigEndian.AppendUint32(body, correlation)
	body = binary.BigEndian.AppendUint16(body, 0xffff) // no client id
	if topic == "" {
		body = binary.BigEndian.AppendUint32(body, 0)
	} else {
		body = binary.BigEndian.AppendUint32(body, 1)
		body = binary.BigEndian.AppendUint16(body, uint16(len(topic)))
		body = append(body, topic...)
	}
	body = append(body, 0) // do not create topics
	response, err := kafkaCall(ctx, addr, body)
	if err != nil {
		return a, err
	}
	r := &wireReader{left: response}
	if got := r.int32(); got != correlation {
		return a, fmt.Errorf("%s is not a Kafka broker: it answers %x", addr, response[:min(len(response), 16)])
	}
	r.int32() // throttle time
	for range r.int32() {
		a.brokers = append(a.brokers, int(r.int32()))
		r.text() // host
		r.int32()
		r.text() // rack
		if r.err != nil {
			return a, r.err
		}
	}
	r.text()  // cluster id
	r.int32() // controller
	if r.int32() > 0 {
		a.topic = r.int16()
	}
	return a, r.err
}

// MakeKafkaTopic creates a topic with the broker's default settings unless it exists.
func MakeKafkaTopic(ctx context.Context, addr, name string, partitions int) error {
	const createTopics, version, correlation, exists = 19, 4, 8, 36
	if name == "" || len(name) > 249 {
		return fmt.Errorf("a topic's name has 1 to 249 letters, digits, dots, dashes and underscores, this one has %d", len(name))
	}
	body := binary.BigEndian.AppendUint16(nil, createTopics)
	body = binary.BigEndian.AppendUint16(body, version)
	body = binary.BigEndian.AppendUint32(body, correlation)
	body = binary.BigEndian.AppendUint16(body, 0xffff) // no client id
	body = binary.BigEndian.AppendUint32(body, 1)
	body = binary.BigEndian.AppendUint16(body, uint16(len(name)))
	body = append(body, name...)
	body = binary.BigEndian.AppendUint32(body, uint32(partitions))
	body = binary.BigEndian.AppendUint16(body, 0xffff) // replicas: the default
	body = binary.BigEndian.AppendUint32(body, 0)      // no assignments
	body = binary.BigEndian.AppendUint32(body, 0)      // no settings
	body = binary.BigEndian.AppendUint32(body, 10_000) // milliseconds
	body = append(body, 0)                             // not only to validate
	answer, err := kafkaCall(ctx, addr, body)
	if err != nil {
		return err
	}
	r := &wireReader{left: answer}
	r.int32() // correlation
	r.int32() // throttle time
	r.int32() // one topic
	r.text()
	code := r.int16()
	if r.err != nil || code == 0 || code == exists {
		return r.err
	}
	return fmt.Errorf("Kafka refuses topic %q with error %d: %s", name, code, r.text())
}

// kafkaCall sends a request and returns the response, both without the length prefix.
func kafkaCall(ctx context.Context, addr string, request []byte) ([]byte, error) {
	conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(callLimit)) // callers retry if the broker hangs
	if _, err := conn.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(request))), request...)); err != nil {
		return nil, err
	}
	var head [4]byte
	if _, err := io.ReadFull(conn, head[:]); err != nil {
		return nil, err
	}
	size := binary.BigEndian.Uint32(head[:])
	if size > 1<<20 {
		return nil, fmt.Errorf("%s is not a Kafka broker: it answers %x", addr, head)
	}
	answer := make([]byte, size)
	_, err = io.ReadFull(conn, answer)
	return answer, err
}

// callLimit is well above the duration of a call, and short enough to retry within a start.
const callLimit = 5 * time.Second

var errShort = errors.New("the answer is too short")

// A wireReader decodes Kafka's wire format. After an error it returns zero values.
type wireReader struct {
	left []byte
	err  error
}

func (r *wireReader) take(n int) []byte {
	if r.err != nil || n > len(r.left) {
		r.err = errShort
		return make([]byte, max(n, 0))
	}
	taken := r.left[:n]
	r.left = r.left[n:]
	return taken
}

func (r *wireReader) int16() int16 { return int16(binary.BigEndian.Uint16(r.take(2))) }
func (r *wireReader) int32() int32 { return int32(binary.BigEndian.Uint32(r.take(4))) }

// text reads a nullable string. Null becomes "".
func (r *wireReader) text() string {
	n := r.int16()
	if n <= 0 {
		return ""
	}
	return string(r.take(int(n)))
}
