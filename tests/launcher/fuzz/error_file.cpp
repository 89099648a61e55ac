// The error file that a worker writes.
#include "launcher/plan/outcome/error_file.h"

#include "launcher/local/report/failure_report.h"
#include "launcher/plan/outcome/describe.h"
#include "launcher/plan/outcome/first_failure.h"
#include "launcher/plan/outcome/job_status.h"
#include "tests/fuzz/fuzz.h"

std::vector<std::string> fuzz::seeds() {
  return {
      R"({"message": {"message": "ValueError: x", "extraInfo": {"py_callstack": "...", "timestamp": "1700000000"}}})",
      R"({"message": {"message": "text", "extraInfo": {"timestamp": 1700000000.25, "rank": 1}}, "timestamp": 1.5})",
      R"({"message": "Connection closed by peer\nmore", "timestamp": 1e400})",
      R"({"message": "\ud800\u0000", "timestamp": -1})",
      "Traceback (most recent call last):\n  File\n",
      "[[[[1]]]]",
      "{\"message\": 5}",
      "\xff\xfe"};
}

fuzz::Outcome fuzz::run(std::string_view bytes) {
  using namespace launcher;
  const auto record = parse_error_record(bytes);
  if (!record) return Outcome::kRefused;
  require(!record->message.empty(), "a record has a message");

  JobEnd job;
  job.ranks.push_back({.rank = 1, .exit_code = 3, .error = record});
  job.ranks.push_back({.rank = 0, .exit_code = 1});
  require(first_failure(job).has_value(), "somebody failed first");
  const std::string report = failure_report(job);
  require(report.size() < 20'000, "the report is short");
  for (const char c : report)
    require(c == '\n' || (static_cast<unsigned char>(c) >= 0x20 && c != 0x7f), "the report holds no control character");
  return Outcome::kAccepted;
}
