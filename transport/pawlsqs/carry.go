package pawlsqs

import (
	"cmp"
	"context"
	"crypto/md5"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// EncodingAttribute names the encoding of a message's body. The only value is "base64", standard
// with padding. A [Source] decodes the body and removes the attribute. Producers in other languages
// may set it too.
const EncodingAttribute = "Pawl-Encoding"

const encodingBase64 = "base64"

// A parcel is the body and the attributes sent to SQS. It arrives octet for octet or is refused
// before the SDK sees it, because the SDK replaces invalid UTF-8.
type parcel struct {
	body       string
	attributes map[string]string
}

// parcelOf checks that SQS can carry the message. A body that SQS can carry stays as it is. If it
// cannot and encode is set, the body is sent as base64.
func parcelOf(body []byte, attributes map[string]string, encode bool) (parcel, error) {
	p := parcel{string(body), attributes}
	switch err := fitText(p.body); {
	case len(body) == 0:
		return p, errors.New("the payload is empty, which SQS refuses")
	case err == nil:
	case !encode:
		return p, fmt.Errorf("the payload %w: set Base64, or encode it yourself", err)
	default:
		p.body, p.attributes = base64.StdEncoding.EncodeToString(body), maps.Clone(attributes)
		p.attributes[EncodingAttribute] = encodingBase64
	}
	if n := len(p.attributes); n > maxAttributes {
		return p, fmt.Errorf("it has %d attributes, SQS takes %d", n, maxAttributes)
	}
	for name, value := range p.attributes {
		if err := fitAttribute(name, value); err != nil {
			return p, err
		}
	}
	if size := p.size(); size > MaxSize {
		return p, fmt.Errorf("it has %d octets with its attributes, SQS takes %d: store the payload, in S3 for instance, and send a reference",
			size, MaxSize)
	}
	return p, nil
}

// size is the size as SQS counts it against its limit.
func (p parcel) size() int {
	size := len(p.body)
	for name, value := range p.attributes {
		size += len(name) + len("String") + len(value)
	}
	return size
}

func (p parcel) messageAttributes() map[string]types.MessageAttributeValue {
	all := make(map[string]types.MessageAttributeValue, len(p.attributes))
	for name, value := range p.attributes {
		all[name] = text(value)
	}
	return all
}

// fitText checks the characters that SendMessage allows: "#x9 | #xA | #xD | #x20 to #xD7FF | #xE000
// to #xFFFD | #x10000 to #x10FFFF".
func fitText(s string) error {
	if !utf8.ValidString(s) {
		return errors.New("is not valid UTF-8, which SQS cannot carry")
	}
	for _, r := range s {
		if r < ' ' && r != '\t' && r != '\n' && r != '\r' || r == 0xFFFE || r == 0xFFFF {
			return fmt.Errorf("holds the character %U, which SQS cannot carry", r)
		}
	}
	return nil
}

// attributeName follows "Amazon SQS message metadata": letters, digits, underscores, hyphens, and
// single periods between them.
var attributeName = regexp.MustCompile(`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$`)

const maxAttributeName = 256

func fitAttribute(name, value string) error {
	lower := strings.ToLower(name)
	switch {
	case !attributeName.MatchString(name), len(name) > maxAttributeName, strings.HasPrefix(lower, "aws."), strings.HasPrefix(lower, "amazon."):
		return fmt.Errorf("SQS has no attribute %q: names are up to 256 letters, digits, '_', '-' and single '.' inside, and do not begin with \"AWS.\" or \"Amazon.\"", name)
	case value == "":
		return fmt.Errorf("the attribute %q is empty, which SQS refuses", name)
	}
	if err := fitText(value); err != nil {
		return fmt.Errorf("the attribute %q %w", name, err)
	}
	return nil
}

// decoded undoes the encoding of parcelOf. A body that is not valid base64 stays as it is, with its
// attribute.
func decoded(m types.Message) types.Message {
	if aws.ToString(m.MessageAttributes[EncodingAttribute].StringValue) != encodingBase64 {
		return m
	}
	body, err := base64.StdEncoding.DecodeString(aws.ToString(m.Body))
	if err != nil {
		return m
	}
	m.Body, m.MessageAttributes = aws.String(string(body)), maps.Clone(m.MessageAttributes)
	delete(m.MessageAttributes, EncodingAttribute)
	return m
}

// callSend calls SendMessageBatch once and returns a result for each entry. The SDK compares
// checksums too, but one mismatch fails the whole call, and the accepted entries would be sent
// again. So its check is off and callSend compares them.
func callSend(ctx context.Context, client SendAPI, in *awssqs.SendMessageBatchInput) (batchResponse, error) {
	out, err := client.SendMessageBatch(ctx, in, func(o *awssqs.Options) { o.DisableMessageChecksumValidation = true })
	if err != nil {
		return batchResponse{}, err
	}
	sums := map[string]string{}
	for _, e := range in.Entries {
		sum := md5.Sum([]byte(*e.MessageBody))
		sums[*e.Id] = hex.EncodeToString(sum[:])
	}
	reply := batchResponse{failed: out.Failed}
	for _, done := range out.Successful {
		sent := sums[aws.ToString(done.Id)]
		if stored := cmp.Or(aws.ToString(done.MD5OfMessageBody), sent); stored != sent {
			reply.failed = append(reply.failed, types.BatchResultErrorEntry{Id: done.Id, SenderFault: true, Code: aws.String("ChecksumMismatch"),
				Message: aws.String(fmt.Sprintf("SQS stored message %s with another body: its checksum is %s, that of the payload %s",
					aws.ToString(done.MessageId), stored, sent))})
			continue
		}
		reply.successful = append(reply.successful, aws.ToString(done.Id))
	}
	return reply, nil
}
