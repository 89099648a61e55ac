#include "comm/shm/mailbox.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

namespace ddp::shm {
namespace {

size_t rest_of(size_t bytes, size_t done) {
  return std::min(kChannelSlotBytes, bytes - done);
}

std::exception_ptr wrong_size(int from, const Announcement& sent, size_t expected) {
  return std::make_exception_ptr(std::runtime_error(
      "rank " + std::to_string(from) + " sent " + std::to_string(sent.bytes) + " bytes under tag " +
      std::to_string(sent.tag) + ", expected " + std::to_string(expected) + ": both need the same shape and dtype"));
}

}  // namespace

void Mailbox::add(MessagePtr message) {
  ++messages_;
  if (message->direction() == Message::Direction::kSend) {
    outgoing_[static_cast<size_t>(message->peer())].to_announce.push_back(std::move(message));
  } else {
    wanted_.push_back(std::move(message));
  }
}

void Mailbox::advance(SlotAccess& slots, bool& moved, std::vector<Ended>& ended) {
  if (is_empty()) return;
  for (int rank = 0; rank < slots.size(); ++rank) {
    if (send(slots, rank, ended)) moved = true;
  }
  if (receive(slots, ended)) moved = true;
}

bool Mailbox::send(SlotAccess& slots, int to, std::vector<Ended>& ended) {
  Outgoing& outgoing = outgoing_[static_cast<size_t>(to)];
  bool moved = announce(slots, to, outgoing);
  if (!outgoing.current && !outgoing.announced.empty()) {
    const uint64_t granted = slots.segment().channel(slots.rank(), to).granted.load();
    if (granted != outgoing.granted) {
      outgoing.granted = granted;
      auto chosen = outgoing.announced.extract(granted - 1);
      outgoing.current = std::move(chosen.mapped());
      moved = true;
    }
  }
  if (outgoing.current && fill(slots, to, outgoing, ended)) moved = true;
  return moved;
}

bool Mailbox::announce(SlotAccess& slots, int to, Outgoing& outgoing) {
  if (outgoing.to_announce.empty()) return false;
  Channel& channel = slots.segment().channel(slots.rank(), to);
  const uint64_t before = channel.announced.load();
  uint64_t number = before;
  while (!outgoing.to_announce.empty() && number - channel.noted.load() < kAnnouncements) {
    MessagePtr message = std::move(outgoing.to_announce.front());
    outgoing.to_announce.pop_front();
    channel.ring[number % kAnnouncements] = {.bytes = message->bytes(), .tag = message->tag()};
    outgoing.announced.emplace(number++, std::move(message));
  }
  if (number == before) return false;
  channel.announced.store(number);
  wake(slots.segment().block(to), WaitCondition::data_of(slots.rank()));
  return true;
}

// A message of no bytes is one piece as well, so that both sides see it pass.
bool Mailbox::fill(SlotAccess& slots, int to, Outgoing& outgoing, std::vector<Ended>& ended) {
  Channel& channel = slots.segment().channel(slots.rank(), to);
  bool moved = false;
  for (uint64_t filled = channel.filled.load(); outgoing.current; ++filled) {
    if (filled - channel.drained.load() >= kChannelSlots) break;
    Message& message = *outgoing.current;
    const size_t bytes = rest_of(message.bytes_, message.done_);
    if (bytes > 0) std::memcpy(channel.pieces[filled % kChannelSlots].data(), message.data_ + message.done_, bytes);
    message.done_ += bytes;
    channel.filled.store(filled + 1);
    wake(slots.segment().block(to), WaitCondition::data_of(slots.rank()));
    moved = true;
    if (message.done_ == message.bytes_) end(std::exchange(outgoing.current, nullptr), nullptr, ended);
  }
  return moved;
}

bool Mailbox::receive(SlotAccess& slots, std::vector<Ended>& ended) {
  bool moved = false;
  for (int rank = 0; rank < slots.size(); ++rank) {
    const bool is_wanted = std::ranges::any_of(wanted_, [&](const MessagePtr& message) {
      return message->peer() == rank || message->peer() == Message::kAnyRank;
    });
    if (rank != slots.rank() && is_wanted && read_notes(slots, rank)) moved = true;
  }
  for (auto message = wanted_.begin(); message != wanted_.end();) {
    bool is_taken = false;
    if (match(slots, *message, ended, is_taken)) moved = true;
    message = is_taken ? wanted_.erase(message) : std::next(message);
  }
  for (int rank = 0; rank < slots.size(); ++rank) {
    if (incoming_[static_cast<size_t>(rank)].current && drain(slots, rank, ended)) moved = true;
  }
  return moved;
}

bool Mailbox::read_notes(SlotAccess& slots, int from) {
  Channel& channel = slots.segment().channel(from, slots.rank());
  const uint64_t announced = channel.announced.load();
  const uint64_t before = channel.noted.load();
  if (announced == before) return false;
  for (uint64_t number = before; number < announced; ++number) {
    incoming_[static_cast<size_t>(from)].notes.push_back({number, channel.ring[number % kAnnouncements]});
  }
  channel.noted.store(announced);
  wake(slots.segment().block(from), WaitCondition::free_slot_of(slots.rank()));
  return true;
}

bool Mailbox::match(SlotAccess& slots, const MessagePtr& message, std::vector<Ended>& ended, bool& is_taken) {
  for (int from = 0; from < slots.size(); ++from) {
    if (message->peer() != Message::kAnyRank && message->peer() != from) continue;
    Incoming& incoming = incoming_[static_cast<size_t>(from)];
    const auto note =
        std::ranges::find_if(incoming.notes, [&](const Note& each) { return each.announcement.tag == message->tag(); });
    if (note == incoming.notes.end() || incoming.current) continue;
    is_taken = true;
    if (note->announcement.bytes != message->bytes()) {
      end(message, wrong_size(from, note->announcement, message->bytes()), ended);
      return true;
    }
    message->peer_ = from;
    incoming.current = message;
    slots.segment().channel(from, slots.rank()).granted.store(note->number + 1);
    incoming.notes.erase(note);
    wake(slots.segment().block(from), WaitCondition::data_of(slots.rank()));
    return true;
  }
  return false;
}

bool Mailbox::drain(SlotAccess& slots, int from, std::vector<Ended>& ended) {
  Incoming& incoming = incoming_[static_cast<size_t>(from)];
  Channel& channel = slots.segment().channel(from, slots.rank());
  bool moved = false;
  for (uint64_t drained = channel.drained.load(); incoming.current && drained < channel.filled.load(); ++drained) {
    Message& message = *incoming.current;
    const size_t bytes = rest_of(message.bytes_, message.done_);
    if (bytes > 0) std::memcpy(message.data_ + message.done_, channel.pieces[drained % kChannelSlots].data(), bytes);
    message.done_ += bytes;
    channel.drained.store(drained + 1);
    wake(slots.segment().block(from), WaitCondition::free_slot_of(slots.rank()));
    moved = true;
    if (message.done_ == message.bytes_) end(std::exchange(incoming.current, nullptr), nullptr, ended);
  }
  return moved;
}

void Mailbox::end(const MessagePtr& message, std::exception_ptr error, std::vector<Ended>& ended) {
  --messages_;
  ended.push_back({message, std::move(error)});
}

Awaited Mailbox::awaited(const Message& message, const SlotAccess& slots) {
  if (message.peer() != Message::kAnyRank) return {.ranks = {message.peer()}};
  Awaited awaited{.any_of_them = true};
  for (int rank = 0; rank < slots.size(); ++rank) {
    if (rank != slots.rank()) awaited.ranks.push_back(rank);
  }
  return awaited;
}

std::vector<MessagePtr> Mailbox::all() const {
  std::vector<MessagePtr> messages(wanted_.begin(), wanted_.end());
  for (const Outgoing& outgoing : outgoing_) {
    messages.insert(messages.end(), outgoing.to_announce.begin(), outgoing.to_announce.end());
    for (const auto& [number, message] : outgoing.announced) messages.push_back(message);
    if (outgoing.current) messages.push_back(outgoing.current);
  }
  for (const Incoming& incoming : incoming_) {
    if (incoming.current) messages.push_back(incoming.current);
  }
  return messages;
}

bool Mailbox::remove(const Message& message) {
  const auto is_it = [&](const MessagePtr& each) { return each.get() == &message; };
  size_t removed = std::erase_if(wanted_, is_it);
  for (Outgoing& outgoing : outgoing_) removed += std::erase_if(outgoing.to_announce, is_it);
  messages_ -= removed;
  return removed > 0;
}

}  // namespace ddp::shm
