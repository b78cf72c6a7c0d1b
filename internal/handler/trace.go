package handler

import (
	"github.com/gin-gonic/gin"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/stockd/stockd/internal/telemetry"
)

// startTrace gives the context of a request its id and its trace: the caller's, or a new one.
// Without a tracer there are no spans, and the log still has the caller's trace id.
func startTrace(tracer trace.Tracer) gin.HandlerFunc {
	return func(c *gin.Context) {
		ctx := telemetry.WithRequestID(c.Request.Context(), requestID(c))
		if c.GetHeader("Traceparent") != "" {
			ctx = propagation.TraceContext{}.Extract(ctx, propagation.HeaderCarrier(c.Request.Header))
		}
		if tracer == nil {
			c.Request = c.Request.WithContext(ctx)
			return
		}
		ctx, span := tracer.Start(ctx, c.Request.Method+" "+c.FullPath(), trace.WithSpanKind(trace.SpanKindServer))
		defer span.End()
		c.Request = c.Request.WithContext(ctx)
		c.Next()
		if span.IsRecording() {
			span.SetAttributes(attribute.String("http.request.method", c.Request.Method), attribute.String("http.route", c.FullPath()),
				attribute.Int("http.response.status_code", c.Writer.Status()), attribute.String("stockd.request_id", requestID(c)))
		}
	}
}
