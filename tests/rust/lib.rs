//! Nothing: the tests are in the binaries beside this file.
