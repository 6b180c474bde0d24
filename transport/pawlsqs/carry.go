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

// EncodingAttribute says how the body of a message is encoded. The only value is "base64", standard with padding: a [Source] decodes
// such a body, and the attribute does not reach the handler. A producer in another language may set it too.
const EncodingAttribute = "Pawl-Encoding"

const encodingBase64 = "base64"

// A parcel is what SQS is handed of a message. It arrives octet for octet, or is refused before the SDK sees it: the SDK replaces
// octets that are no UTF-8.
type parcel struct {
	body       string
	attributes map[string]string
}

// parcelOf checks what SQS can carry. What no attribute tells of the body stays as it is; if SQS cannot carry it and encode is set, it
// goes as base64.
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

// size counts as the limit of SQS does.
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

// fitText follows SendMessage: "#x9 | #xA | #xD | #x20 to #xD7FF | #xE000 to #xFFFD | #x10000 to #x10FFFF".
func fitText(s string) error {
	if !utf8.ValidString(s) {
		return errors.New("is no UTF-8, which SQS cannot carry")
	}
	for _, r := range s {
		if r < ' ' && r != '\t' && r != '\n' && r != '\r' || r == 0xFFFE || r == 0xFFFF {
			return fmt.Errorf("holds the character %U, which SQS cannot carry", r)
		}
	}
	return nil
}

// attributeName follows "Amazon SQS message metadata": letters, digits, underscores, hyphens and single periods inside.
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

// decoded undoes what a parcel did. A body that is not what its attribute says stays as it is, and so does the attribute.
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

// callSend is one call of SendMessageBatch, with a verdict on each entry. The SDK compares checksums too, and makes of one that differs
// an error of the whole call: the neighbours, which were accepted, would be sent again. So they are compared here.
func callSend(ctx context.Context, client SendAPI, in *awssqs.SendMessageBatchInput) (batchAnswer, error) {
	out, err := client.SendMessageBatch(ctx, in, func(o *awssqs.Options) { o.DisableMessageChecksumValidation = true })
	if err != nil {
		return batchAnswer{}, err
	}
	sums := map[string]string{}
	for _, e := range in.Entries {
		sum := md5.Sum([]byte(*e.MessageBody))
		sums[*e.Id] = hex.EncodeToString(sum[:])
	}
	reply := batchAnswer{failed: out.Failed}
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
