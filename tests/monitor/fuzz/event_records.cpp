// Event files: records, and the fields of the messages in them. The first byte chooses: the file as it is, or payloads,
// each a length and as many bytes, that are put into records.
#include <stdexcept>

#include "monitor/event.h"
#include "monitor/wire/protobuf.h"
#include "monitor/wire/record.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/memory_file.h"

namespace {

using namespace ddp;
using fuzz::require;

// Whether it is a message.
bool check_fields(std::string_view message) {
  try {
    wire::MessageReader reader(message);
    while (const auto field = reader.next()) {
      require(field->number > 0, "fields are numbered from 1");
      if (field->bytes.empty()) continue;
      require(field->bytes.data() >= message.data() &&
                  field->bytes.data() + field->bytes.size() <= message.data() + message.size(),
              "a field lies within its message");
    }
    return true;
  } catch (const std::runtime_error&) {
    return false;
  }
}

struct Contents {
  std::vector<std::string> payloads{};
  bool is_damaged = false;
};

Contents read_records(std::string_view content) {
  const fuzz::MemoryFile file(content);
  Contents contents;
  std::string again;
  try {
    wire::RecordReader reader(file.path());
    while (auto record = reader.next()) {
      wire::append_record(again, *record);
      contents.payloads.push_back(std::move(*record));
    }
    require(again.size() + reader.incomplete_bytes() == content.size(), "what is no record is said to be missing");
  } catch (const std::runtime_error& error) {
    require(std::string_view(error.what()).find(file.path().string()) != std::string_view::npos,
            "the error names the file");
    contents.is_damaged = true;
  }
  require(content.starts_with(again), "the records are those in the file, to the byte");
  return contents;
}

std::string events(std::size_t count) {
  std::string file;
  for (std::size_t i = 0; i < count; ++i)
    wire::append_record(file, encode_scalar({.wall_time = 1, .step = static_cast<int64_t>(i)}, "loss", 0.5));
  return file;
}

}  // namespace

std::vector<std::string> fuzz::seeds() {
  std::vector<std::string> all = {chosen('0', events(3)), chosen('0', events(1).append(7, '\0')), "0"};
  std::string payloads = "1";
  for (const std::string& event :
       {encode_file_version(1), encode_scalar({.wall_time = 2, .step = 3}, "loss", 0.25),
        encode_text({.wall_time = 2, .step = 3}, "tag", "text"), encode_session_start({.wall_time = 3, .step = 7}),
        encode_hparams(1, {{"lr", 0.1}, {"name", "x"}}, {{"loss", 1}})}) {
    payloads.push_back(static_cast<char>(event.size()));
    payloads += event;
  }
  all.push_back(payloads);
  return all;
}

fuzz::Outcome fuzz::run(std::string_view bytes) {
  Input input(bytes);
  if (input.byte() % 2 == 0) {  // '0' is 48
    const Contents contents = read_records(input.rest());
    for (const std::string& payload : contents.payloads) check_fields(payload);
    return contents.is_damaged ? Outcome::kRefused : Outcome::kAccepted;
  }
  std::vector<std::string> payloads;
  std::string file;
  while (!input.is_empty()) {
    const std::uint8_t length = input.byte();
    payloads.emplace_back(input.piece(length));
    wire::append_record(file, payloads.back());
  }
  const Contents contents = read_records(file);
  require(!contents.is_damaged && contents.payloads == payloads, "records come back as they were written");
  bool are_messages = true;
  for (const std::string& payload : payloads) are_messages = check_fields(payload) && are_messages;
  return are_messages ? Outcome::kAccepted : Outcome::kRefused;
}
