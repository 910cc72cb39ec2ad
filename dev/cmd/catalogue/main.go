// Command catalogue rewrites the files of package catalogue in this checkout.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/seahub/seahub-mq/dev/catalogue"
	"github.com/seahub/seahub-mq/dev/stack"
)

func main() {
	if err := write(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "catalogue:", err)
		os.Exit(1)
	}
}

func write(ctx context.Context) error {
	root, err := stack.Root()
	if err != nil {
		return err
	}
	binaries, err := stack.Build(ctx, root, filepath.Join(root, ".local", "bin"), false, stack.Services()...)
	if err != nil {
		return err
	}
	files, err := catalogue.Files(ctx, binaries)
	if err != nil {
		return err
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(root, name), content, 0o644); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
	}
	return nil
}
