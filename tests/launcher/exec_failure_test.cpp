#include "launcher/processes/exec_failure.h"

#include <cerrno>
#include <string>
#include <vector>

#include "tests/support/catch.h"

namespace launcher {
namespace {

using Words = std::vector<std::string>;

TEST_CASE("ExecFailure: says what to look at") {
  CHECK(exec_failure_text("./p", ENOENT, {}, {}, 0) ==
        "cannot execute ./p: No such file or directory (the interpreter that it names?)");
  CHECK(exec_failure_text("./p", ENOEXEC, {}, {}, 0) ==
        "cannot execute ./p: Exec format error (damaged, or built for another kind of machine?)");
  CHECK(exec_failure_text("./p", EACCES, {}, {}, 0) == "cannot execute ./p: Permission denied");
}

TEST_CASE("ExecFailure: names what is too big") {
  const std::string most(131071, 'x');  // with its end 128 KiB: just allowed
  CHECK(exec_failure_text("p", E2BIG, Words{"p", most}, Words{"A=1", "B=" + most}, 1 << 20) ==
        "cannot execute p: Argument list too long (the variable B has 129 KiB, and the kernel takes at most 128 "
        "KiB in one)");
  CHECK(
      exec_failure_text("p", E2BIG, Words{"p", "x" + most}, Words{"A=1"}, 1 << 20) ==
      "cannot execute p: Argument list too long (argument 1 has 128 KiB, and the kernel takes at most 128 KiB in one)");
  CHECK(exec_failure_text("p", E2BIG, Words{"p", most}, Words{most, most}, 256 << 10) ==
        "cannot execute p: Argument list too long (the arguments have 129 KiB and the environment has 257 KiB; the "
        "limit for both is 256 KiB, a quarter of ulimit -s)");
}

}  // namespace
}  // namespace launcher
