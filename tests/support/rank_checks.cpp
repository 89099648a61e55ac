#include "tests/support/rank_checks.h"

#include <catch2/internal/catch_assertion_handler.hpp>

#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace ddp::test {
namespace {

const std::thread::id kMainThread = std::this_thread::get_id();

// What one assertion of a thread came to.
struct Finding {
  checking::Assertion assertion;
  bool held;
  std::string details;
};

// What all threads have found since the last report.
struct Findings {
  std::mutex mutex;
  std::vector<Finding> list;

  std::vector<Finding> take() {
    const std::lock_guard lock(mutex);
    return std::exchange(list, {});
  }
};

Findings& findings() {
  static Findings all;
  return all;
}

std::vector<std::string>& infos() {
  thread_local std::vector<std::string> texts;
  return texts;
}

std::string with_infos(std::string details) {
  for (const std::string& text : infos()) details += "\n  " + text;
  return details;
}

void tell_catch(const Finding& finding) {
  const auto& [assertion, held, details] = finding;
  Catch::AssertionHandler handler(
      Catch::StringRef(assertion.macro), assertion.line, Catch::StringRef(assertion.expression),
      assertion.is_required ? Catch::ResultDisposition::Normal : Catch::ResultDisposition::ContinueOnFailure);
  handler.handleMessage(held ? Catch::ResultWas::Ok : Catch::ResultWas::ExpressionFailed, std::string(details));
  handler.complete();
}

void found(Finding finding) {
  if (is_main_thread()) return tell_catch(finding);
  const bool ends_thread = finding.assertion.is_required && !finding.held;
  {
    Findings& all = findings();
    const std::lock_guard lock(all.mutex);
    all.list.push_back(std::move(finding));
  }
  if (ends_thread) throw RequirementFailed();
}

}  // namespace

bool is_main_thread() {
  return std::this_thread::get_id() == kMainThread;
}

bool report_rank_checks() {
  if (!is_main_thread()) return true;
  bool all_held = true;
  for (Finding& finding : findings().take()) {
    all_held = all_held && finding.held;
    finding.assertion.is_required = false;  // the others are reported as well
    tell_catch(finding);
  }
  return all_held;
}

std::string unreported_rank_checks() {
  std::string text;
  for (const auto& [assertion, held, details] : findings().take()) {
    if (held) continue;
    text += std::string(assertion.line.file) + ":" + std::to_string(assertion.line.line) + ": " + assertion.macro +
            "( " + assertion.expression + " ): " + details + "\n";
  }
  return text;
}

ThreadNote::ThreadNote(std::string text) {
  infos().push_back(std::move(text));
}
ThreadNote::~ThreadNote() {
  infos().pop_back();
}

namespace checking {

void passed(const Assertion& assertion) {
  found({assertion, true, {}});
}

void failed(const Assertion& assertion, const std::string& details) {
  found({assertion, false, with_infos(details)});
}

std::string text_of(const std::function<void(std::ostream&)>& write) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  std::ostringstream stream;
  write(stream);
  return stream.str();
}

}  // namespace checking
}  // namespace ddp::test
