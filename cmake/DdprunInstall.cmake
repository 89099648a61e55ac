# Install rules; filled together with the package test.
