#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "launcher/local/processes/worker_group.h"
#include "tests/launcher/in_child.h"
#include "tests/support/catch.h"

namespace launcher {
namespace {

using Words = std::vector<std::string>;

constexpr ExecLimits kLimits{.total_bytes_limit = 1 << 20, .string_bytes_limit = 128 << 10};

TEST_CASE("ExecFailure: says what to look at") {
  CHECK(exec_failure_text("./p", ENOENT, {}, {}, kLimits) ==
        "cannot execute ./p: No such file or directory (the interpreter that it names?)");
  CHECK(exec_failure_text("./p", ENOEXEC, {}, {}, kLimits) ==
        "cannot execute ./p: Exec format error (damaged, or built for another kind of machine?)");
  CHECK(exec_failure_text("./p", EACCES, {}, {}, kLimits) == "cannot execute ./p: Permission denied");
}

TEST_CASE("ExecFailure: names what is too big") {
  const std::string most(131071, 'x');  // with its end 128 KiB: just allowed
  CHECK(exec_failure_text("p", E2BIG, Words{"p", most}, Words{"A=1", "B=" + most}, kLimits) ==
        "cannot execute p: Argument list too long (the variable B has 129 KiB, and the kernel accepts at most 128 "
        "KiB in one)");
  CHECK(exec_failure_text("p", E2BIG, Words{"p", "x" + most}, Words{"A=1"}, kLimits) ==
        "cannot execute p: Argument list too long (argument 1 has 128 KiB, and the kernel accepts at most 128 KiB in "
        "one)");
  CHECK(exec_failure_text("p", E2BIG, Words{"p", most}, Words{most, most},
                          {.total_bytes_limit = 256 << 10, .string_bytes_limit = 128 << 10}) ==
        "cannot execute p: Argument list too long (the arguments have 129 KiB and the environment has 257 KiB; the "
        "limit for both is 256 KiB, a quarter of ulimit -s)");
}

// What the kernel makes of a program with these: 0, or its error.
int execute(const Words& arguments, const Words& environment, const rlimit* stack = nullptr) {
  std::vector<char*> argv, envp;
  for (const auto& text : arguments) argv.push_back(const_cast<char*>(text.c_str()));
  for (const auto& text : environment) envp.push_back(const_cast<char*>(text.c_str()));
  argv.push_back(nullptr);
  envp.push_back(nullptr);
  const auto answer = in_child([&] {
    const pid_t child = ::vfork();
    if (child == 0) {
      if (stack != nullptr) ::setrlimit(RLIMIT_STACK, stack);
      ::execve("/bin/true", argv.data(), envp.data());
      ::_exit(errno == E2BIG ? 77 : 1);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return std::to_string(WEXITSTATUS(status));
  });
  CHECK((answer == "0" || answer == "77"));
  return answer == "77" ? E2BIG : 0;
}

TEST_CASE("ExecFailure: what it calls too long is what the kernel refuses, to the byte, whatever its pages") {
  const std::string most(exec_limits().string_bytes_limit - 1, 'x');
  CHECK(execute({"p", most}, {}) == 0);
  CHECK(execute({"p", most + "x"}, {}) == E2BIG);
  CHECK(execute({"p"}, {"V=" + most.substr(2)}) == 0);
  CHECK(execute({"p"}, {"V=" + most.substr(1)}) == E2BIG);
  const auto blamed = [](const Words& arguments, const Words& environment) {
    return exec_failure_text("p", E2BIG, arguments, environment, exec_limits()).find("in one") != std::string::npos;
  };
  CHECK_FALSE(blamed({"p", most}, {"V=" + most.substr(2)}));
  CHECK(blamed({"p", most + "x"}, {}));
  CHECK(blamed({"p"}, {"V=" + most.substr(1)}));
}

TEST_CASE("ExecFailure: on a machine with pages of 64 KiB one string may have 2 MiB") {
  const auto limits = exec_limits(64 << 10, 8 << 20);
  const std::string most((2 << 20) - 1, 'x');
  CHECK_THAT(exec_failure_text("p", E2BIG, Words{"p", most}, {}, limits),
             Catch::Matchers::ContainsSubstring("the limit for both is 2048 KiB, a quarter of ulimit -s"));
  CHECK_THAT(
      exec_failure_text("p", E2BIG, Words{"p", most + "x"}, {}, limits),
      Catch::Matchers::ContainsSubstring("argument 1 has 2048 KiB, and the kernel accepts at most 2048 KiB in one"));
}

TEST_CASE("ExecFailure: the limit for both follows the stack's, between the kernel's lowest and highest") {
  CHECK(exec_limits(4096, 8 << 20).total_bytes_limit == 2 << 20);
  CHECK(exec_limits(4096, 64 << 10).total_bytes_limit == 128 << 10);
  const auto unlimited = exec_limits(4096, RLIM_INFINITY);
  CHECK(unlimited.total_bytes_limit == 6 << 20);
  CHECK_THAT(exec_failure_text("p", E2BIG, {}, {}, unlimited),
             Catch::Matchers::EndsWith("the limit for both is 6144 KiB, the maximum of the kernel)"));
}

// Of many small arguments, the bytes of both that are just within the limit, and just beyond.
TEST_CASE("ExecFailure: the limit for both is the kernel's own") {
  rlimit stack{};
  ::getrlimit(RLIMIT_STACK, &stack);
  if (stack.rlim_max < 32 << 20) SKIP("the stack's hard limit is too low");
  for (const rlim_t bytes : {rlim_t{1} << 20, rlim_t{32} << 20}) {
    const rlimit limit{.rlim_cur = bytes, .rlim_max = stack.rlim_max};
    const auto both = exec_limits(4096, bytes).total_bytes_limit;
    const std::string each(32 << 10, 'a');
    const std::size_t count = both / (each.size() + 1 + sizeof(char*));
    INFO(bytes);
    CHECK(execute(Words(count - 1, each), {}, &limit) == 0);
    CHECK(execute(Words(count + 1, each), {}, &limit) == E2BIG);
  }
}

TEST_CASE("ExecFailure: many small ones are counted with their ends and pointers") {
  const Words arguments(1024, std::string(1015, 'a'));
  CHECK_THAT(
      exec_failure_text("p", E2BIG, arguments, Words(2048, "B=" + std::string(501, 'b')),
                        {.total_bytes_limit = 2 << 20, .string_bytes_limit = 128 << 10}),
      Catch::Matchers::EndsWith("(the arguments have 1024 KiB and the environment has 1024 KiB; the limit for both is "
                                "2048 KiB, a quarter of ulimit -s)"));
}

TEST_CASE("ExecFailure: any other error is what the system says, with nothing added") {
  for (const int error : {EACCES, EPERM, ETXTBSY, EIO, ELOOP, ENOMEM, ENOTDIR, EISDIR, EMFILE, EINVAL}) {
    CHECK(exec_failure_text("a b", error, Words{"a b"}, {}, kLimits) ==
          std::string("cannot execute a b: ") + std::strerror(error));
  }
  UNSCOPED_INFO("a variable without a value is its own name");
  CHECK_THAT(exec_failure_text("p", E2BIG, {}, Words{std::string(200'000, 'V')}, kLimits),
             Catch::Matchers::ContainsSubstring("VVV has 196 KiB"));
}

}  // namespace
}  // namespace launcher
