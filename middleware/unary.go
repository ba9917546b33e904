package middleware

import "context"

// Unary returns a guard in the shape of a gRPC interceptor for unary calls. This
// package does not import gRPC; its types are the type parameters:
//
//	grpc.UnaryInterceptor(middleware.Unary[*grpc.UnaryServerInfo, grpc.UnaryHandler](apply, key, toStatus))
//
// key finds the key of a call: from the request, the metadata in ctx or the method
// in info; ErrSkip lets a call pass without a lock. toStatus makes the application's
// status of an error of the guard: codes.Aborted of ErrRefused, codes.Unavailable
// of ErrUnavailable, codes.InvalidArgument of ErrKey. The handler's own errors pass
// as they are.
func Unary[Info any, Handler ~func(context.Context, any) (any, error)](g *Guard, key func(ctx context.Context, req any, info Info) (string, error), toStatus func(error) error) func(context.Context, any, Info, Handler) (any, error) {
	return func(ctx context.Context, req any, info Info, handler Handler) (any, error) {
		k, err := key(ctx, req, info)
		if err == ErrSkip {
			return handler(ctx, req)
		}
		ran := false
		var resp any
		if err == nil {
			resp, err = Do(ctx, g, k, func(ctx context.Context) (any, error) {
				ran = true
				return handler(ctx, req)
			})
		}
		if err != nil && !ran && toStatus != nil {
			err = toStatus(err)
		}
		return resp, err
	}
}
