terraform {
  required_version = ">= 1.5"
  required_providers {
    archive = { source = "hashicorp/archive", version = "~> 2.4" }
    aws     = { source = "hashicorp/aws", version = ">= 6.0" }
  }
}

provider "aws" {
  default_tags {
    tags = { service = "my-shop", stage = var.stage }
  }
}

variable "stage" {
  type    = string
  default = "dev"
}

# Settings of a deployment in the Parameter Store.
data "aws_ssm_parameter" "setting" {
  for_each = local.settings
  name     = "/my-shop/${var.stage}/${each.key}"
}

data "aws_caller_identity" "own" {}
data "aws_partition" "own" {}
data "aws_region" "own" {}

locals {
  name = "my-shop-${var.stage}"

  settings = {
    alarm-topic  = {}
    token-secret = {}
    # <sql>

    security-groups = {}
    subnets         = {}
    shop-secret     = {}
    # </sql>
    # <etcd>

    etcd = {}
    # </etcd>
  }

  # Timeouts in seconds. API Gateway gives up after 30 s; the next sweep starts within a minute.
  functions = {
    http     = { timeout = 29 }
    orders   = { timeout = 30 }
    schedule = { timeout = 60 }
    sweep    = { timeout = 55 }
    # <sql>
    # Invoke it after each deployment.
    migrate = { timeout = 120 }
    # </sql>
  }

  schedules = {
    schedule = { expression = "cron(10 0 * * ? *)" }
    sweep    = { expression = "rate(1 minute)" }
  }

  # Queues in seconds: SQS deletes a dead letter by the time of its first sending, so that its queue keeps it for longer. The
  # visibility timeout is six timeouts of the function.
  queues = {
    orders      = { retention = 864000, visibility = 180 }
    orders-dead = { retention = 1209600, visibility = 30 }
    events-dead = { retention = 1209600, visibility = 30 }
  }

  in_account = "${data.aws_region.own.region}:${data.aws_caller_identity.own.account_id}"
}

# <dynamodb>
# Stock, runs and locks. Terraform refuses to destroy the table. `lockstep migrate --print` shows the same keys.
resource "aws_dynamodb_table" "shop" {
  name                        = local.name
  billing_mode                = "PAY_PER_REQUEST"
  hash_key                    = "pk"
  range_key                   = "sk"
  deletion_protection_enabled = true
  attribute {
    name = "pk"
    type = "S"
  }
  attribute {
    name = "sk"
    type = "S"
  }
  point_in_time_recovery {
    enabled = true
  }
  # By the key aws/dynamodb of the account.
  server_side_encryption {
    enabled = true
  }
  lifecycle {
    prevent_destroy = true
  }
}

# </dynamodb>
# Terraform refuses to destroy a queue: it may have messages.
resource "aws_sqs_queue" "queue" {
  for_each                   = local.queues
  name                       = "${local.name}-${each.key}"
  message_retention_seconds  = each.value.retention
  visibility_timeout_seconds = each.value.visibility
  sqs_managed_sse_enabled    = true
  lifecycle {
    prevent_destroy = true
  }
}

# The count is the maximum. Contention and outages cause deliveries too; the handler itself moves poison messages.
resource "aws_sqs_queue_redrive_policy" "orders" {
  queue_url = aws_sqs_queue.queue["orders"].id
  redrive_policy = jsonencode({
    deadLetterTargetArn = aws_sqs_queue.queue["orders-dead"].arn
    maxReceiveCount     = 1000
  })
}

resource "aws_sqs_queue_redrive_allow_policy" "orders_dead" {
  queue_url = aws_sqs_queue.queue["orders-dead"].id
  redrive_allow_policy = jsonencode({
    redrivePermission = "byQueue"
    sourceQueueArns   = [aws_sqs_queue.queue["orders"].arn]
  })
}

resource "aws_sqs_queue_redrive_allow_policy" "orders" {
  queue_url            = aws_sqs_queue.queue["orders"].id
  redrive_allow_policy = jsonencode({ redrivePermission = "denyAll" })
}

resource "aws_sqs_queue_redrive_allow_policy" "events_dead" {
  queue_url            = aws_sqs_queue.queue["events-dead"].id
  redrive_allow_policy = jsonencode({ redrivePermission = "denyAll" })
}

data "aws_iam_policy_document" "over_tls" {
  for_each = local.queues
  statement {
    effect    = "Deny"
    actions   = ["sqs:*"]
    resources = [aws_sqs_queue.queue[each.key].arn]
    principals {
      type        = "*"
      identifiers = ["*"]
    }
    condition {
      test     = "Bool"
      variable = "aws:SecureTransport"
      values   = ["false"]
    }
  }
}

resource "aws_sqs_queue_policy" "over_tls" {
  for_each  = local.queues
  queue_url = aws_sqs_queue.queue[each.key].id
  policy    = data.aws_iam_policy_document.over_tls[each.key].json
}

data "aws_iam_policy_document" "assume" {
  statement {
    actions = ["sts:AssumeRole"]
    principals {
      type        = "Service"
      identifiers = ["lambda.amazonaws.com"]
    }
  }
}

# What every function may do.
data "aws_iam_policy_document" "function" {
  statement {
    actions   = ["logs:CreateLogStream", "logs:PutLogEvents"]
    resources = ["arn:${data.aws_partition.own.partition}:logs:${local.in_account}:log-group:/aws/lambda/${local.name}-*"]
  }
  # <dynamodb>
  statement {
    actions = [
      "dynamodb:BatchGetItem",
      "dynamodb:DeleteItem",
      "dynamodb:GetItem",
      "dynamodb:Query",
      "dynamodb:UpdateItem",
    ]
    resources = [aws_dynamodb_table.shop.arn]
  }
  # These actions do not support resource-level permissions.
  # </dynamodb>
  # <sql>
  statement {
    actions   = ["secretsmanager:GetSecretValue"]
    resources = [data.aws_ssm_parameter.setting["shop-secret"].insecure_value]
  }
  # Lambda creates the network interfaces. These actions do not support resource-level permissions.
  # </sql>
  statement {
    actions = [
      "xray:PutTraceSegments",
      "xray:PutTelemetryRecords",
      # <sql>
      "ec2:CreateNetworkInterface",
      "ec2:DescribeNetworkInterfaces",
      "ec2:DescribeSubnets",
      "ec2:DeleteNetworkInterface",
      "ec2:AssignPrivateIpAddresses",
      "ec2:UnassignPrivateIpAddresses",
      # </sql>
    ]
    resources = ["*"]
  }
  # <sql>
  # Denies the network to the functions' own code.
  statement {
    effect    = "Deny"
    actions   = ["ec2:*"]
    resources = ["*"]
    condition {
      test     = "ArnLike"
      variable = "lambda:SourceFunctionArn"
      values   = ["arn:${data.aws_partition.own.partition}:lambda:${local.in_account}:function:${local.name}-*"]
    }
  }
  # </sql>
}

resource "aws_iam_role" "function" {
  for_each           = local.functions
  name               = "${local.name}-${each.key}"
  assume_role_policy = data.aws_iam_policy_document.assume.json
}

resource "aws_iam_role_policy" "function" {
  for_each = local.functions
  role     = aws_iam_role.function[each.key].id
  policy   = data.aws_iam_policy_document.function.json
}

data "aws_iam_policy_document" "http" {
  statement {
    actions   = ["secretsmanager:GetSecretValue"]
    resources = [data.aws_ssm_parameter.setting["token-secret"].insecure_value]
  }
}

resource "aws_iam_role_policy" "http" {
  role   = aws_iam_role.function["http"].id
  policy = data.aws_iam_policy_document.http.json
}

data "aws_iam_policy_document" "orders" {
  statement {
    actions = [
      "sqs:ReceiveMessage",
      "sqs:DeleteMessage",
      "sqs:ChangeMessageVisibility",
      "sqs:GetQueueAttributes",
    ]
    resources = [aws_sqs_queue.queue["orders"].arn]
  }
  statement {
    actions   = ["sqs:SendMessage"]
    resources = [aws_sqs_queue.queue["orders-dead"].arn]
  }
}

resource "aws_iam_role_policy" "orders" {
  role   = aws_iam_role.function["orders"].id
  policy = data.aws_iam_policy_document.orders.json
}

data "aws_iam_policy_document" "schedule" {
  statement {
    actions   = ["sqs:SendMessage"]
    resources = [aws_sqs_queue.queue["events-dead"].arn]
  }
}

resource "aws_iam_role_policy" "schedule" {
  role   = aws_iam_role.function["schedule"].id
  policy = data.aws_iam_policy_document.schedule.json
}

data "archive_file" "function" {
  for_each    = local.functions
  type        = "zip"
  source_dir  = "${path.module}/build/${each.key}"
  output_path = "${path.module}/build/${each.key}.zip"
}

resource "aws_cloudwatch_log_group" "function" {
  for_each          = local.functions
  name              = "/aws/lambda/${local.name}-${each.key}"
  retention_in_days = 30
}

# Nothing is reserved: Lambda reserves none of the ten concurrent executions of a new account.
resource "aws_lambda_function" "function" {
  for_each         = local.functions
  function_name    = "${local.name}-${each.key}"
  role             = aws_iam_role.function[each.key].arn
  runtime          = "nodejs24.x"
  architectures    = ["arm64"]
  memory_size      = 512
  timeout          = each.value.timeout
  handler          = "index.handler"
  filename         = data.archive_file.function[each.key].output_path
  source_code_hash = data.archive_file.function[each.key].output_base64sha256
  tracing_config {
    mode = "Active"
  }
  # <sql>
  vpc_config {
    security_group_ids = split(",", data.aws_ssm_parameter.setting["security-groups"].insecure_value)
    subnet_ids         = split(",", data.aws_ssm_parameter.setting["subnets"].insecure_value)
  }
  # </sql>
  environment {
    variables = {
      LOCKSTEP_SERVICE = local.name
      TOKEN_SECRET     = data.aws_ssm_parameter.setting["token-secret"].insecure_value
      DEAD_LETTERS     = aws_sqs_queue.queue["orders-dead"].arn
      # <dynamodb>
      TABLE            = aws_dynamodb_table.shop.name
      # </dynamodb>
      # <sql>
      SHOP_SECRET      = data.aws_ssm_parameter.setting["shop-secret"].insecure_value
      DATABASE         = "shop"
      # </sql>
      # <etcd>
      ETCD             = data.aws_ssm_parameter.setting["etcd"].insecure_value
      # </etcd>
      # <sql>
      # Node itself does not trust Amazon's authorities, which sign the certificates of RDS. Lambda has this file.
      NODE_EXTRA_CA_CERTS = "/var/runtime/ca-cert.pem"
      # </sql>
    }
  }
  depends_on = [aws_cloudwatch_log_group.function, aws_iam_role_policy.function]
}

resource "aws_lambda_event_source_mapping" "orders" {
  event_source_arn        = aws_sqs_queue.queue["orders"].arn
  function_name           = aws_lambda_function.function["orders"].arn
  batch_size              = 10
  function_response_types = ["ReportBatchItemFailures"]
  scaling_config {
    maximum_concurrency = 5
  }
  depends_on = [aws_iam_role_policy.orders]
}

resource "aws_lambda_function_event_invoke_config" "schedule" {
  function_name                = aws_lambda_function.function["schedule"].function_name
  maximum_retry_attempts       = 2
  maximum_event_age_in_seconds = 3600
  destination_config {
    on_failure {
      destination = aws_sqs_queue.queue["events-dead"].arn
    }
  }
  depends_on = [aws_iam_role_policy.schedule]
}

resource "aws_lambda_function_event_invoke_config" "sweep" {
  function_name                = aws_lambda_function.function["sweep"].function_name
  maximum_retry_attempts       = 0
  maximum_event_age_in_seconds = 60
}

resource "aws_cloudwatch_event_rule" "schedule" {
  for_each            = local.schedules
  name                = "${local.name}-${each.key}"
  schedule_expression = each.value.expression
}

resource "aws_cloudwatch_event_target" "schedule" {
  for_each = local.schedules
  rule     = aws_cloudwatch_event_rule.schedule[each.key].name
  arn      = aws_lambda_function.function[each.key].arn
}

resource "aws_lambda_permission" "schedule" {
  for_each      = local.schedules
  function_name = aws_lambda_function.function[each.key].function_name
  action        = "lambda:InvokeFunction"
  principal     = "events.amazonaws.com"
  source_arn    = aws_cloudwatch_event_rule.schedule[each.key].arn
}

resource "aws_apigatewayv2_api" "http" {
  name          = local.name
  protocol_type = "HTTP"
}

resource "aws_apigatewayv2_integration" "http" {
  api_id                 = aws_apigatewayv2_api.http.id
  integration_type       = "AWS_PROXY"
  integration_uri        = aws_lambda_function.function["http"].invoke_arn
  payload_format_version = "2.0"
}

resource "aws_apigatewayv2_route" "http" {
  api_id    = aws_apigatewayv2_api.http.id
  route_key = "$default"
  target    = "integrations/${aws_apigatewayv2_integration.http.id}"
}

resource "aws_cloudwatch_log_group" "access" {
  name              = "/aws/http-api/${local.name}"
  retention_in_days = 30
}

resource "aws_apigatewayv2_stage" "http" {
  api_id      = aws_apigatewayv2_api.http.id
  name        = "$default"
  auto_deploy = true
  default_route_settings {
    throttling_rate_limit  = 20
    throttling_burst_limit = 10
  }
  access_log_settings {
    destination_arn = aws_cloudwatch_log_group.access.arn
    format = jsonencode({
      request = "$context.requestId"
      ip      = "$context.identity.sourceIp"
      method  = "$context.httpMethod"
      path    = "$context.path"
      status  = "$context.status"
      latency = "$context.responseLatency"
      error   = "$context.error.message"
    })
  }
}

resource "aws_lambda_permission" "http" {
  function_name = aws_lambda_function.function["http"].function_name
  action        = "lambda:InvokeFunction"
  principal     = "apigateway.amazonaws.com"
  source_arn    = "${aws_apigatewayv2_api.http.execution_arn}/*"
}

locals {
  # Alarms on queues, by the metric. The age ignores messages received more than three times: in an outage this is soon every
  # message.
  queue_alarms = {
    orders-dead-has-some = { queue = "orders-dead", metric = "ApproximateNumberOfMessagesVisible", threshold = 0, periods = 1 }
    events-dead-has-some = { queue = "events-dead", metric = "ApproximateNumberOfMessagesVisible", threshold = 0, periods = 1 }
    orders-are-late      = { queue = "orders", metric = "ApproximateAgeOfOldestMessage", threshold = 900, periods = 5 }
  }

  # Alarms on functions. The schedule runs once a day. Throttling uses up deliveries of messages.
  function_alarms = {
    http-fails           = { function = "http", metric = "Errors", periods = 3 }
    orders-fails         = { function = "orders", metric = "Errors", periods = 3 }
    schedule-fails       = { function = "schedule", metric = "Errors", periods = 1 }
    sweep-fails          = { function = "sweep", metric = "Errors", periods = 3 }
    orders-are-throttled = { function = "orders", metric = "Throttles", periods = 3 }
  }

  # The fences make both harmless. Many of them say that locks expire while work is done.
  own_alarms = {
    locks-are-lost        = { metric = "lockstep.lock.lost" }
    writes-are-fenced-out = { metric = "lockstep.fenced_out" }
  }

  alarm_topic = [data.aws_ssm_parameter.setting["alarm-topic"].insecure_value]
}

resource "aws_cloudwatch_metric_alarm" "queue" {
  for_each            = local.queue_alarms
  alarm_name          = "${local.name}-${each.key}"
  namespace           = "AWS/SQS"
  metric_name         = each.value.metric
  dimensions          = { QueueName = aws_sqs_queue.queue[each.value.queue].name }
  statistic           = "Maximum"
  period              = 60
  evaluation_periods  = each.value.periods
  threshold           = each.value.threshold
  comparison_operator = "GreaterThanThreshold"
  treat_missing_data  = "notBreaching"
  alarm_actions       = local.alarm_topic
}

resource "aws_cloudwatch_metric_alarm" "orders_are_stuck" {
  alarm_name          = "${local.name}-orders-are-stuck"
  evaluation_periods  = 3
  threshold           = 0
  comparison_operator = "GreaterThanThreshold"
  treat_missing_data  = "notBreaching"
  alarm_actions       = local.alarm_topic
  metric_query {
    id          = "stuck"
    expression  = "IF(received > 0 AND FILL(done, 0) == 0, 1, 0)"
    return_data = true
  }
  metric_query {
    id = "received"
    metric {
      namespace   = "AWS/SQS"
      metric_name = "NumberOfMessagesReceived"
      dimensions  = { QueueName = aws_sqs_queue.queue["orders"].name }
      period      = 300
      stat        = "Sum"
    }
  }
  metric_query {
    id = "done"
    metric {
      namespace   = "AWS/SQS"
      metric_name = "NumberOfMessagesDeleted"
      dimensions  = { QueueName = aws_sqs_queue.queue["orders"].name }
      period      = 300
      stat        = "Sum"
    }
  }
}

resource "aws_cloudwatch_metric_alarm" "function" {
  for_each            = local.function_alarms
  alarm_name          = "${local.name}-${each.key}"
  namespace           = "AWS/Lambda"
  metric_name         = each.value.metric
  dimensions          = { FunctionName = aws_lambda_function.function[each.value.function].function_name }
  statistic           = "Sum"
  period              = 60
  evaluation_periods  = each.value.periods
  threshold           = 0
  comparison_operator = "GreaterThanThreshold"
  treat_missing_data  = "notBreaching"
  alarm_actions       = local.alarm_topic
}

# Without a sweep, parked runs wait for ever.
resource "aws_cloudwatch_metric_alarm" "sweep_does_not_run" {
  alarm_name          = "${local.name}-sweep-does-not-run"
  namespace           = "AWS/Lambda"
  metric_name         = "Invocations"
  dimensions          = { FunctionName = aws_lambda_function.function["sweep"].function_name }
  statistic           = "Sum"
  period              = 60
  evaluation_periods  = 5
  threshold           = 1
  comparison_operator = "LessThanThreshold"
  treat_missing_data  = "breaching"
  alarm_actions       = local.alarm_topic
}

# A problem response is not an error of the function, not even in an outage of the stores.
resource "aws_cloudwatch_metric_alarm" "http_is_unavailable" {
  alarm_name          = "${local.name}-http-is-unavailable"
  namespace           = "AWS/ApiGateway"
  metric_name         = "5xx"
  dimensions          = { ApiId = aws_apigatewayv2_api.http.id }
  statistic           = "Sum"
  period              = 60
  evaluation_periods  = 3
  threshold           = 0
  comparison_operator = "GreaterThanThreshold"
  treat_missing_data  = "notBreaching"
  alarm_actions       = local.alarm_topic
}

resource "aws_cloudwatch_metric_alarm" "own" {
  for_each            = local.own_alarms
  alarm_name          = "${local.name}-${each.key}"
  namespace           = "Lockstep"
  metric_name         = each.value.metric
  dimensions          = { service = local.name }
  statistic           = "Sum"
  period              = 60
  evaluation_periods  = 3
  threshold           = 0
  comparison_operator = "GreaterThanThreshold"
  treat_missing_data  = "notBreaching"
  alarm_actions       = local.alarm_topic
}

output "url" {
  value = aws_apigatewayv2_stage.http.invoke_url
}

output "orders_url" {
  value = aws_sqs_queue.queue["orders"].url
}
