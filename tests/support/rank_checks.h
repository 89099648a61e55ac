// Assertions for ranks, which are threads here, and for other threads of a test. Catch2's own may be used by the test's
// main thread alone (tests/support/main.cpp ends a program that uses them elsewhere).
//
//     run_ranks(2, [](const GroupHandle& group) { RANK_CHECK(group.size() == 2); });
//
// What a thread finds is kept until the main thread reports it: run_ranks() does so at its end, a test that starts
// threads by itself calls report_rank_checks() once they have ended. On the main thread these report at once, so that
// helpers may be used by both.
#pragma once

#include <catch2/catch_tostring.hpp>
#include <catch2/internal/catch_decomposer.hpp>

#include <functional>
#include <ostream>
#include <sstream>
#include <string>

#include "tests/support/catch.h"
#include "tests/support/errors.h"

namespace ddp::test {

/// Thrown by a RANK_REQUIRE that does not hold, to end the thread's body. No std::exception: what catches those, to
/// look at them, lets it pass.
struct RequirementFailed {};

/// Hands everything that other threads have found to Catch2 and returns whether all of it held. On another thread than
/// the main one it does nothing.
bool report_rank_checks();

/// Failures that nobody has reported, in words; "" when there are none.
std::string unreported_rank_checks();

/// Whether this is the thread that Catch2's own assertions may be used on.
bool is_main_thread();

/// Says more about the assertions of this thread that fail while it lives.
class ThreadNote {
 public:
  explicit ThreadNote(std::string text);
  ~ThreadNote();
  ThreadNote(const ThreadNote&) = delete;
  ThreadNote& operator=(const ThreadNote&) = delete;
};

namespace checking {

struct Assertion {
  const char* macro;
  Catch::SourceLineInfo line;
  const char* expression;
  bool is_required;
};

void passed(const Assertion& assertion);
void failed(const Assertion& assertion, const std::string& details);

/// What `write` writes. One at a time: Catch2's conversions to text share their streams.
std::string text_of(const std::function<void(std::ostream&)>& write);

inline void judge_expression(const Assertion& assertion, const Catch::ITransientExpression& expression) {
  if (expression.getResult()) return passed(assertion);
  failed(assertion, text_of([&](std::ostream& stream) { expression.streamReconstructedExpression(stream); }));
}

template <typename Left>
void judge(const Assertion& assertion, const Catch::ExprLhs<Left>& expression) {
  judge_expression(assertion, expression.makeUnaryExpr());
}
template <typename Left, typename Right>
void judge(const Assertion& assertion, const Catch::BinaryExpr<Left, Right>& expression) {
  judge_expression(assertion, expression);
}

inline void judge_false(const Assertion& assertion, bool value) {
  value ? failed(assertion, "!true") : passed(assertion);
}

template <typename Value, typename Matcher>
void judge_match(const Assertion& assertion, const Value& value, const Matcher& matcher) {
  if (matcher.match(value)) return passed(assertion);
  failed(assertion, text_of([&](std::ostream& stream) {
           stream << Catch::Detail::stringify(value) << ' ' << matcher.toString();
         }));
}

template <typename Error, typename Body>
void judge_throws(const Assertion& assertion, Body&& body) {
  try {
    body();
  } catch (const Error&) {
    return passed(assertion);
  }
  failed(assertion, "nothing was thrown");
}

}  // namespace checking
}  // namespace ddp::test

#define DDPRUN_ASSERTION(macro, text, is_required)    \
  ::ddp::test::checking::Assertion {                  \
    macro, CATCH_INTERNAL_LINEINFO, text, is_required \
  }
#define DDPRUN_JUDGE(macro, is_required, ...)                                                            \
  do {                                                                                                   \
    CATCH_INTERNAL_START_WARNINGS_SUPPRESSION                                                            \
    CATCH_INTERNAL_SUPPRESS_PARENTHESES_WARNINGS                                                         \
    ::ddp::test::checking::judge(DDPRUN_ASSERTION(macro, #__VA_ARGS__, is_required),                     \
                                 ::Catch::Decomposer() <= __VA_ARGS__); /* NOLINT(bugprone-chained-*) */ \
    CATCH_INTERNAL_STOP_WARNINGS_SUPPRESSION                                                             \
  } while (false)

#define RANK_CHECK(...) DDPRUN_JUDGE("RANK_CHECK", false, __VA_ARGS__)
#define RANK_REQUIRE(...) DDPRUN_JUDGE("RANK_REQUIRE", true, __VA_ARGS__)
#define RANK_CHECK_FALSE(...)                                                                   \
  ::ddp::test::checking::judge_false(DDPRUN_ASSERTION("RANK_CHECK_FALSE", #__VA_ARGS__, false), \
                                     static_cast<bool>(__VA_ARGS__))
#define RANK_REQUIRE_FALSE(...)                                                                  \
  ::ddp::test::checking::judge_false(DDPRUN_ASSERTION("RANK_REQUIRE_FALSE", #__VA_ARGS__, true), \
                                     static_cast<bool>(__VA_ARGS__))
#define RANK_CHECK_THAT(value, ...)                                                                               \
  ::ddp::test::checking::judge_match(DDPRUN_ASSERTION("RANK_CHECK_THAT", #value ", " #__VA_ARGS__, false), value, \
                                     __VA_ARGS__)
#define RANK_REQUIRE_THAT(value, ...)                                                                              \
  ::ddp::test::checking::judge_match(DDPRUN_ASSERTION("RANK_REQUIRE_THAT", #value ", " #__VA_ARGS__, true), value, \
                                     __VA_ARGS__)
#define RANK_CHECK_THROWS_AS(expression, ...)                                         \
  ::ddp::test::checking::judge_throws<__VA_ARGS__>(                                   \
      DDPRUN_ASSERTION("RANK_CHECK_THROWS_AS", #expression ", " #__VA_ARGS__, false), \
      [&] { static_cast<void>(expression); })
/// The type may not contain a comma at its top.
#define RANK_CHECK_THROWS_MATCHES(expression, error, ...)                                              \
  ::ddp::test::checking::judge_match(                                                                  \
      DDPRUN_ASSERTION("RANK_CHECK_THROWS_MATCHES", #expression ", " #error ", " #__VA_ARGS__, false), \
      ::ddp::test::error_of<error>([&] { static_cast<void>(expression); }), __VA_ARGS__)
#define RANK_FAIL_CHECK(...)                                                    \
  ::ddp::test::checking::failed(DDPRUN_ASSERTION("RANK_FAIL_CHECK", "", false), \
                                static_cast<const std::ostringstream&>(std::ostringstream() << __VA_ARGS__).str())
#define RANK_FAIL(...)                                                   \
  ::ddp::test::checking::failed(DDPRUN_ASSERTION("RANK_FAIL", "", true), \
                                static_cast<const std::ostringstream&>(std::ostringstream() << __VA_ARGS__).str())
#define RANK_INFO(...)                                                 \
  const ::ddp::test::ThreadNote INTERNAL_CATCH_UNIQUE_NAME(rank_info)( \
      static_cast<const std::ostringstream&>(std::ostringstream() << __VA_ARGS__).str())
