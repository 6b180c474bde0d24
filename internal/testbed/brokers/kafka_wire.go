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

// The calls are encoded by hand because this module has no Kafka client.

// kafkaRequest returns the head of a request: no client id, and the correlation id 7.
func kafkaRequest(call, version uint16) []byte {
	head := binary.BigEndian.AppendUint16(nil, call)
	head = binary.BigEndian.AppendUint16(head, version)
	head = binary.BigEndian.AppendUint32(head, kafkaCorrelation)
	return binary.BigEndian.AppendUint16(head, 0xffff)
}

const kafkaCorrelation = 7

// kafkaAnswers sends a Metadata request without a topic. It returns an error until the broker
// itself is in the metadata that clients get.
func kafkaAnswers(ctx context.Context, s *Server) error {
	body := kafkaRequest(3, 4)
	body = binary.BigEndian.AppendUint32(body, 0) // no topics
	r, err := kafkaCall(ctx, s.Addr(), append(body, 0))
	if err != nil {
		return err
	}
	r.int32() // throttle time
	if brokers := r.int32(); r.err == nil && brokers == 0 {
		return errors.New("the broker is not among the brokers of its cluster yet")
	}
	return r.err
}

// MakeKafkaTopic creates a topic with the broker's default settings unless it exists.
func MakeKafkaTopic(ctx context.Context, addr, name string, partitions int) error {
	code, text, err := createKafkaTopic(ctx, addr, name, partitions)
	if err != nil || code == 0 || code == kafkaTopicExists {
		return err
	}
	return fmt.Errorf("Kafka refuses topic %q with error %d: %s", name, code, text)
}

const kafkaTopicExists = 36

// createKafkaTopic returns the broker's error code, 0 for success.
func createKafkaTopic(ctx context.Context, addr, name string, partitions int) (code int16, text string, err error) {
	if name == "" || len(name) > 249 {
		return 0, "", fmt.Errorf("a topic's name has 1 to 249 letters, digits, dots, dashes and underscores, this one has %d", len(name))
	}
	body := kafkaRequest(19, 4)
	body = binary.BigEndian.AppendUint32(body, 1)
	body = binary.BigEndian.AppendUint16(body, uint16(len(name)))
	body = append(body, name...)
	body = binary.BigEndian.AppendUint32(body, uint32(partitions))
	body = binary.BigEndian.AppendUint16(body, 0xffff) // replicas: the default
	body = binary.BigEndian.AppendUint32(body, 0)      // no assignments
	body = binary.BigEndian.AppendUint32(body, 0)      // no settings
	body = binary.BigEndian.AppendUint32(body, 10_000) // milliseconds
	body = append(body, 0)                             // not only to validate
	r, err := kafkaCall(ctx, addr, body)
	if err != nil {
		return 0, "", err
	}
	r.int32() // throttle time
	r.int32() // one topic
	r.text()
	code, text = r.int16(), r.text()
	return code, text, r.err
}

// kafkaCall sends a request without its length prefix, and returns the response after its
// correlation id.
func kafkaCall(ctx context.Context, addr string, request []byte) (*wireReader, error) {
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
	if _, err := io.ReadFull(conn, answer); err != nil {
		return nil, err
	}
	r := &wireReader{left: answer}
	if r.int32() != kafkaCorrelation {
		return nil, fmt.Errorf("%s is not a Kafka broker: it answers %x", addr, answer[:min(len(answer), 16)])
	}
	return r, nil
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
