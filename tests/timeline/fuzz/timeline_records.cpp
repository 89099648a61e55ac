// The words of a thread's ring, which are another process's memory.
#include <cstring>

#include "base/timeline/assembler.h"
#include "tests/fuzz/fuzz.h"

namespace {

std::string words_of(const std::vector<ddp::detail::Record>& records) {
  std::string bytes;
  for (const auto& record : records) {
    std::array<std::uint64_t, ddp::detail::kMaxRecordWords> words{};
    bytes.append(reinterpret_cast<const char*>(words.data()), 8 * ddp::detail::encode(record, words));
  }
  return bytes;
}

}  // namespace

std::vector<std::string> fuzz::seeds() {
  using namespace ddp::detail;
  const Record begin{.type = RecordType::kBegin, .kind = EventKind::kForward, .time = 10, .text = "forward"};
  const Record end{.type = RecordType::kEnd, .time = 20, .number = event_id(0, 0)};
  const Record bucket{
      .type = RecordType::kBegin, .kind = EventKind::kBucket, .time = 10, .value = 5, .text = "bucket 0"};
  const Record mark{.type = RecordType::kMark, .time = 12, .number = event_id(0, 0)};
  const Record step{.type = RecordType::kStep, .time = 30, .number = 1};
  const Record thread{.type = RecordType::kThread, .time = 1, .number = 7, .value = 7, .text = "name"};
  const Record span{
      .type = RecordType::kSpan, .kind = EventKind::kDevice, .time = 1, .number = 9, .value = 2, .text = "kernel"};
  return {words_of({thread, begin, end, step}), words_of({bucket, mark, end}), words_of({span, begin, begin, begin}),
          words_of({{.type = RecordType::kValue, .time = 1, .value = 1, .text = "loss"}})};
}

fuzz::Outcome fuzz::run(std::string_view bytes) {
  using namespace ddp::detail;
  std::vector<std::uint64_t> words(bytes.size() / 8);
  if (!words.empty()) std::memcpy(words.data(), bytes.data(), 8 * words.size());
  std::size_t events = 0;
  Assembler assembler([&](const TraceEvent& event) {
    ++events;
    require(event.form != TraceEvent::Form::kSlice || event.begin <= event.end, "an event ends behind its begin");
    require(trace_json(event, 0, 0).find('\0') == std::string::npos, "lines have no NUL");
  });
  assembler.take(0, 0, words);
  assembler.on_pass_end();
  assembler.take(1, 0, words);
  assembler.finish(0);
  require(events <= 8 * words.size() + 8, "no more comes out than went in");
  return assembler.damaged() > 0 ? Outcome::kRefused : Outcome::kAccepted;
}
