# Makes every call that the server supports with the installed botocore, and prints the results. Random values get
# names in the order of their appearance, so that two botocores of different protocols print the same.
import json
import sys

import botocore
import botocore.session
from botocore.config import Config

sqs = botocore.session.get_session().create_client(
    "sqs", endpoint_url=sys.argv[1], region_name="us-east-1", aws_access_key_id="any", aws_secret_access_key="any",
    config=Config(retries={"max_attempts": 1}))
seen = {}


def tame(value, key=""):
    if isinstance(value, dict):
        return {k: tame(v, k) for k, v in sorted(value.items()) if k not in ("ResponseMetadata", "HTTPHeaders", "RetryAttempts", "QueryErrorCode")}
    if isinstance(value, list):
        return [tame(v, key) for v in value]
    if isinstance(value, bytes):
        return list(value)
    if key.endswith("Timestamp"):
        return "a time"
    if key in ("MessageId", "ReceiptHandle", "TaskHandle"):
        return seen.setdefault(value, "%s-%d" % (key, len(seen)))
    if key == "Says":
        for known, name in seen.items():
            value = value.replace(known, name)
    return value


def call(name, **parameters):
    try:
        result = getattr(sqs, name)(**parameters)
        if not result["ResponseMetadata"].get("RequestId"):
            sys.exit(name + " has no request id")
    except botocore.exceptions.ClientError as e:
        if not e.response["ResponseMetadata"].get("RequestId"):
            sys.exit(name + " has no request id: " + str(e))
        result = {"Refused": e.response["Error"]["Code"], "Says": e.response["Error"]["Message"], "Type": type(e).__name__}
    print(name, json.dumps(tame(result), sort_keys=True))
    return result


print("protocol", "query" if sqs.meta.service_model.metadata["protocol"] == "query" else "json", file=sys.stderr)

dead = call("create_queue", QueueName="dead", tags={"team": "a", "empty": ""})["QueueUrl"]
arn = call("get_queue_attributes", QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
url = call("create_queue", QueueName="q", Attributes={
    "VisibilityTimeout": "60", "RedrivePolicy": json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 1})})["QueueUrl"]
fifo = call("create_queue", QueueName="q.fifo", Attributes={"FifoQueue": "true", "ContentBasedDeduplication": "true"})["QueueUrl"]
call("create_queue", QueueName="q", Attributes={"VisibilityTimeout": "61"})
call("get_queue_url", QueueName="q")
call("get_queue_url", QueueName="none")
call("list_queues")
call("list_queues", QueueNamePrefix="q", MaxResults=1)
call("list_dead_letter_source_queues", QueueUrl=dead)
call("tag_queue", QueueUrl=dead, Tags={"stage": "test"})
call("untag_queue", QueueUrl=dead, TagKeys=["team", "none"])
call("list_queue_tags", QueueUrl=dead)
call("list_queue_tags", QueueUrl=url)
call("set_queue_attributes", QueueUrl=url, Attributes={"DelaySeconds": "0", "ReceiveMessageWaitTimeSeconds": "0"})
call("set_queue_attributes", QueueUrl=url, Attributes={"Colour": "red"})
call("get_queue_attributes", QueueUrl=url, AttributeNames=["All"])

body = "<a b=\"c\">&amp; ]]></a>\r\n\tw\u00f6rld+%20\U0001F600 \u00a0"
call("send_message", QueueUrl=url, MessageBody=body, MessageAttributes={
    "text": {"DataType": "String", "StringValue": "a&b=c \u00e9"}, "number": {"DataType": "Number.int", "StringValue": "7"},
    "octets": {"DataType": "Binary", "BinaryValue": bytes(range(256))}},
    MessageSystemAttributes={"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=1-5759e988-bd862e3fe1be46a994272793"}})
call("send_message", QueueUrl=url, MessageBody="\x0b")
call("send_message", QueueUrl=url, MessageBody="x", DelaySeconds=901)
call("send_message_batch", QueueUrl=url, Entries=[
    {"Id": "good", "MessageBody": "a", "MessageAttributes": {"k": {"DataType": "String", "StringValue": "v"}}},
    {"Id": "bad", "MessageBody": "\x01"}, {"Id": "late", "MessageBody": "b", "DelaySeconds": 900}])
call("send_message_batch", QueueUrl=url, Entries=[{"Id": "same", "MessageBody": "a"}, {"Id": "same", "MessageBody": "b"}])
received = call("receive_message", QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=1, AttributeNames=["All"], MessageAttributeNames=["All"])["Messages"]
assert received[0]["Body"] == body, received
call("receive_message", QueueUrl=url)
call("receive_message", QueueUrl=url, MaxNumberOfMessages=11)
first, second = (m["ReceiptHandle"] for m in received)
call("change_message_visibility", QueueUrl=url, ReceiptHandle=first, VisibilityTimeout=0)
call("change_message_visibility", QueueUrl=url, ReceiptHandle=first, VisibilityTimeout=10)
call("change_message_visibility_batch", QueueUrl=url, Entries=[
    {"Id": "held", "ReceiptHandle": second, "VisibilityTimeout": 90}, {"Id": "not", "ReceiptHandle": "garbage", "VisibilityTimeout": 1}])
call("delete_message", QueueUrl=url, ReceiptHandle=second)
call("delete_message", QueueUrl=url, ReceiptHandle="garbage")
call("receive_message", QueueUrl=url)  # what was made visible goes to the dead-letter queue instead
handle = call("receive_message", QueueUrl=dead, VisibilityTimeout=0, AttributeNames=["All"])["Messages"][0]["ReceiptHandle"]
call("start_message_move_task", SourceArn=arn, MaxNumberOfMessagesPerSecond=1)
call("cancel_message_move_task", TaskHandle="none")
call("list_message_move_tasks", SourceArn=arn + "none")
call("delete_message_batch", QueueUrl=dead, Entries=[{"Id": "0", "ReceiptHandle": handle}, {"Id": "1", "ReceiptHandle": "garbage"}])

call("send_message", QueueUrl=fifo, MessageBody="one", MessageGroupId="g")
call("send_message", QueueUrl=fifo, MessageBody="one", MessageGroupId="g")
call("send_message", QueueUrl=fifo, MessageBody="two", MessageGroupId="g", MessageDeduplicationId="d")
call("receive_message", QueueUrl=fifo, MaxNumberOfMessages=10, ReceiveRequestAttemptId="a", AttributeNames=["All"])
call("receive_message", QueueUrl=fifo, MaxNumberOfMessages=10, ReceiveRequestAttemptId="a", AttributeNames=["SequenceNumber"])
call("purge_queue", QueueUrl=fifo)
call("purge_queue", QueueUrl=fifo)
call("add_permission", QueueUrl=url, Label="l", AWSAccountIds=["1"], Actions=["*"])
call("delete_queue", QueueUrl=fifo)
call("send_message", QueueUrl=fifo, MessageBody="one", MessageGroupId="g")
