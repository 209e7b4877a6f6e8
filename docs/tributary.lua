-- Names the fields of Tributary's packets (wire version 2, docs/wire.md) in Wireshark and tshark.
--
--   tshark -r run.pcapng -X lua_script:docs/tributary.lua -O tributary
--
-- For Wireshark, copy the file into the folder that Help > About > Folders calls "Personal Lua Plugins". A packet is known
-- by its first bytes, whatever its port; `tributary.kind_name == "UPDATE"` is a filter.

local tributary = Proto("tributary", "Tributary")

local TYPES = {
    [1] = "f32", [2] = "f16", [3] = "bf16", [4] = "i32", [5] = "f64", [6] = "i8", [7] = "i16", [8] = "i64", [9] = "u8",
}
local OPERATORS = {
    [0] = "broadcast", [1] = "sum", [2] = "avg", [3] = "min", [4] = "max", [5] = "prod",
    [6] = "band", [7] = "bor", [8] = "bxor",
}
-- Those of the job's own.
for number = 0, 7 do
    OPERATORS[128 + number] = "own " .. number
end
local PROTOCOLS = {
    [1] = "SwitchML", [2] = "ring", [3] = "Canary", [4] = "parameter servers", [5] = "PANAMA",
    [6] = "ATP", [7] = "PA-ATP", [8] = "Flare", [9] = "SparCML",
}
local CAUSES = { [1] = "silent", [2] = "mismatch" }

-- Each list has a packet's fields in order: name, offset, bytes, what it is, and where they exist names of values, a value
-- with a meaning of its own, or names of bits.
local COMMON = {
    { "magic", 0, 2, "Magic", hex = true },
    { "version", 2, 1, "Version of the wire format" },
    { "protocol", 3, 1, "Protocol", values = PROTOCOLS },
    { "kind", 4, 1, "Kind" },
    { "checksum", 5, 1, "Checksum in the low half of the key", values = { [0] = "none", [1] = "CRC32C" } },
    { "job", 6, 2, "Job" },
    { "key", 8, 8, "Key of the job", hex = true },
}
local COLLECTIVE = {
    { "elements", 0, 4, "Elements of the collective" },
    { "type", 4, 1, "Element type", values = TYPES },
    { "operator", 5, 1, "Operator", values = OPERATORS },
    { "root", 6, 2, "Root", special = { 0xffff, "none" } },
}
local PING = { { "reach", 16, 2, "Bytes of a packet that reaches the sender; 0: all" } }
local CHALLENGE = { { "incarnation", 16, 8, "Incarnation of the join", hex = true } }
local FRAGMENT = {
    { "fragment.id", 16, 2, "Number of the packet that was cut" },
    { "fragment.offset", 18, 2, "Offset of the fragment in that packet" },
    { "fragment.total", 20, 2, "Bytes of that packet" },
    { "fragment.index", 22, 1, "Which fragment" },
    { "fragment.count", 23, 1, "Fragments" },
}
local PROGRESS = {
    { "progress.begun", 16, 8, "Collectives that the rank has begun" },
    { "progress.over", 24, 8, "Those that are over" },
    { "progress.rank", 40, 2, "Rank" },
    { "progress.age", 44, 4, "Microseconds in the oldest that is not over" },
}
local HELLO = {
    { "hello.node", 16, 4, "Node of the sender" },
    { "hello.ready", 20, 1, "Knows the running jobs" },
    { "hello.adverts", 21, 1, "Adverts" },
}
local ADVERT = {
    { "advert.switch", 0, 2, "Switch that says so" },
    { "advert.seq", 2, 8, "Sequence of the advert" },
    { "advert.dead", 10, 1, "Dead ports" },
}
local PAUSE = { { "pause.micros", 16, 4, "Microseconds without a packet; 0: go on" } }
local CARRY = {
    { "carry.via", 16, 4, "Switch that it passes first", special = { 0xffffffff, "none" } },
    { "carry.to", 20, 4, "Host that it is for" },
    { "carry.port", 24, 2, "UDP port there" },
    { "carry.reserved", 26, 2, "Reserved", hex = true },
}
local SLOT = {
    { "wid", 24, 2, "Contributor (wid)" },
    { "idx", 26, 2, "Slot (idx)" },
    { "phase", 28, 4, "Phase of the slot" },
    { "exponent", 32, 2, "Exponent", signed = true, special = { -0x8000, "zero" } },
    { "flags", 34, 1, "Flags", bits = { { 0x01, "NON_FINITE" }, { 0x02, "UNKNOWN" }, { 0x04, "NORM" } } },
    { "slot.reserved", 35, 1, "Reserved", hex = true },
}
local REPORT = {
    { "report.above", 36, 1, "Levels to the first silent switch" },
    { "report.reserved", 37, 1, "Reserved", hex = true },
    { "report.missing", 38, 2, "Ranks that have not contributed" },
    { "report.unknown", 40, 2, "Ranks below silent switches" },
}
local MISMATCH = { { "mismatch.a", 0, 2, "Rank a" }, { "mismatch.b", 2, 2, "Rank b" } }
local RING_DATA = {
    { "ring.seq", 24, 4, "Sequence on this link" },
    { "ring.offset", 28, 4, "First element of the block" },
    { "ring.op", 32, 2, "Collective, modulo 2^16" },
    { "ring.flags", 34, 1, "Flags", bits = { { 0x80, "RESULT" }, { 0x40, "ACKNOWLEDGE" }, { 0x3f, "attempt" } } },
    { "ring.reserved", 35, 1, "Reserved", hex = true },
}
local RING_ACK = {
    { "ring.cum", 16, 4, "All before this one have arrived" },
    { "ring.limit", 20, 4, "No place from this one on" },
    { "ring.echo_seq", 24, 4, "Packet that is answered" },
    { "ring.marks", 28, 2, "Congestion marks so far" },
    { "ring.echo_attempt", 30, 1, "Its attempt" },
    { "ring.words", 31, 1, "Selective words" },
}
local RING_NOTICE = { { "ring.waits", 16, 8, "Collective that waits" }, { "ring.worker", 24, 2, "Silent rank" } }
local RING_FAULT = {
    { "ring.fails", 16, 8, "First collective that fails" },
    { "ring.a", 24, 2, "Rank a" },
    { "ring.b", 26, 2, "Rank b" },
    { "ring.cause", 28, 1, "Cause", values = CAUSES },
}
local SPARCML_DATA = {
    { "sparcml.seq", 24, 4, "Sequence on this link" },
    { "sparcml.op", 28, 2, "Collective, modulo 2^16" },
    { "sparcml.flags", 30, 1, "Flags", bits = { { 0x80, "PARTIAL" }, { 0x40, "ACKNOWLEDGE" }, { 0x3f, "attempt" } } },
    { "sparcml.shape", 31, 1, "Shape and step", bits = { { 0xe0, "shape" }, { 0x1f, "step" } } },
    { "sparcml.count", 32, 2, "Indices of the body" },
    { "sparcml.chunk", 34, 2, "Chunk of the indices" },
    { "sparcml.fragment", 36, 4, "Fragment of the message" },
    { "sparcml.fragments", 40, 4, "Its fragments" },
}
local PARTING = { { "ps.completed", 16, 8, "Collectives that are complete" } }
local CANARY = {
    { "canary.destination", 16, 4, "Destination" },
    { "canary.id", 20, 4, "Id of the block" },
    { "canary.counter", 24, 2, "Contributions in the vector" },
    { "canary.hosts", 26, 2, "Ranks that take part" },
    { "canary.children", 28, 4, "Children", hex = true },
    { "canary.switch_address", 32, 4, "Switch address", special = { 0xffffffff, "none" } },
    { "canary.root", 36, 4, "Switch that the tree ends in" },
    { "canary.flags", 40, 1, "Flags", bits = {
        { 0x80, "BYPASS" }, { 0x40, "MULTICAST" }, { 0x20, "TO_LEADER" }, { 0x02, "UNKNOWN" }, { 0x01, "NON_FINITE" },
    } },
    { "canary.shard", 41, 1, "Shard of the children" },
    { "canary.attempt", 42, 1, "Attempt" },
    { "canary.reserved", 43, 1, "Reserved", hex = true },
    { "canary.exponent", 44, 2, "Exponent", signed = true, special = { -0x8000, "zero" } },
    { "canary.wid", 46, 2, "Rank that sent it (wid)" },
    { "canary.contributors", 48, 4, "Proof of the contributors", hex = true },
}

local PANAMA = {
    { "panama.vid", 16, 4, "VID" },
    { "panama.tid", 20, 1, "Tree (TID)" },
    { "panama.flags", 21, 1, "Flags", hex = true },
    { "panama.wnd_cap", 22, 2, "Least room on the way, packets", special = { 0xffff, "none known" } },
    { "panama.epoch", 24, 2, "Epoch" },
    { "panama.wid", 26, 2, "Contributor (wid)" },
    { "panama.contributors", 36, 2, "Ranks in the vector" },
}

local FLARE = {
    { "flare.wid", 24, 2, "Contributor (wid)" },
    { "flare.slot", 26, 2, "Slot" },
    { "flare.phase", 28, 4, "Phase of the slot" },
    { "flare.subtree", 32, 2, "Subtree of the sender" },
    { "flare.flags", 34, 1, "Flags", bits = {
        { 0x01, "NON_FINITE" }, { 0x02, "UNKNOWN" }, { 0x04, "NORM" }, { 0x08, "EXPONENT" },
    } },
    { "flare.reserved", 35, 1, "Reserved", hex = true },
    { "flare.order", 36, 4, "Expression of the vector", hex = true, special = { 0, "none" } },
}
local FLARE_EXPONENT = {
    { "flare.exponent", 36, 2, "Exponent", signed = true, special = { -0x8000, "zero" } },
    { "flare.exponent.reserved", 38, 2, "Reserved", hex = true },
}
local FLARE_SPARSE = {
    { "flare.shard", 32, 4, "Shard, or the first that is missing" },
    { "flare.count", 36, 4, "Flags, and how many shards there are", hex = true },
}

local ATP = {
    { "atp.seq", 16, 4, "Number of the block in the job's stream" },
    { "atp.prog", 20, 4, "Sum of all ranks' newest numbers (PROG); the first bit: GACK", hex = true },
    { "atp.index", 24, 4, "Times that the position was moved" },
    { "atp.received", 28, 4, "Gradients that came to the server unsummed" },
    { "atp.flags", 32, 2, "Flags", hex = true },
    { "atp.wid", 34, 2, "Rank that speaks, or is meant (wid)" },
    { "atp.count", 36, 2, "Ranks in the vector" },
    { "atp.attempt", 38, 1, "Attempt" },
    { "atp.marks", 39, 1, "Marks", bits = { { 0x01, "EXPONENT_NON_FINITE" }, { 0x02, "SCALE_NON_FINITE" } } },
    { "atp.exponent", 40, 2, "Exponent of the block", signed = true, special = { -0x8000, "zero or none" } },
    { "atp.scale_exponent", 42, 2, "Exponent of the scale", signed = true, special = { -0x8000, "none" } },
}

local fields = {}

local function declare(list)
    for _, row in ipairs(list) do
        local name, len, label = row[1], row[3], row[4]
        local base = row.hex and base.HEX or base.DEC
        local make = row.signed and ProtoField.int16
            or ({ ProtoField.uint8, ProtoField.uint16, nil, ProtoField.uint32, nil, nil, nil, ProtoField.uint64 })[len]
        if len == 8 then
            fields[name] = make("tributary." .. name, label, base)
        else
            fields[name] = make("tributary." .. name, label, base, row.values)
        end
        for _, bit in ipairs(row.bits or {}) do
            local bit_name = name .. "." .. bit[2]:lower()
            if bit[2] == "attempt" then
                fields[bit_name] = ProtoField.uint8("tributary." .. bit_name, bit[2], nil, nil, bit[1])
            else
                fields[bit_name] = ProtoField.bool("tributary." .. bit_name, bit[2], 8, nil, bit[1])
            end
        end
    end
end

for _, list in ipairs({
    COMMON, COLLECTIVE, PING, CHALLENGE, FRAGMENT, PROGRESS, HELLO, ADVERT, CARRY, PAUSE, SLOT, REPORT, MISMATCH,
    RING_DATA, RING_ACK, RING_NOTICE, RING_FAULT, SPARCML_DATA, PARTING, CANARY, PANAMA, FLARE, FLARE_EXPONENT, FLARE_SPARSE, ATP,
}) do
    declare(list)
end
fields.kind_name = ProtoField.string("tributary.kind_name", "Kind, by name")
fields.collective = ProtoField.none("tributary.collective", "Collective header")
fields.advert = ProtoField.none("tributary.advert", "Advert")
fields.port = ProtoField.uint8("tributary.advert.port", "Dead port")
fields.rank = ProtoField.uint16("tributary.report.rank", "Missing rank")
fields.word = ProtoField.uint64("tributary.ring.word", "Selective word", base.HEX)
fields.shards = ProtoField.uint64("tributary.flare.shards", "Shards that have come, a bit each", base.HEX)
fields.bitmap = ProtoField.bytes("tributary.canary.contributed", "Ranks that have contributed, a bit each")
fields.vector = ProtoField.bytes("tributary.vector", "Vector")
fields.payload = ProtoField.bytes("tributary.payload", "Payload")

tributary.fields = {}
for _, field in pairs(fields) do
    table.insert(tributary.fields, field)
end
local strange =
    ProtoExpert.new("tributary.strange", "Not of this wire format", expert.group.PROTOCOL, expert.severity.WARN)
tributary.experts = { strange }

-- Adds the fields of a list that the packet is long enough for.
local function add(tree, tvb, list, from)
    for _, row in ipairs(list) do
        local at, len = (from or 0) + row[2], row[3]
        if at + len > tvb:len() then
            return
        end
        local item = tree:add(fields[row[1]], tvb(at, len))
        if row.special then
            local value = row.signed and tvb(at, len):int() or tvb(at, len):uint()
            if value == row.special[1] then
                item:append_text(" (" .. row.special[2] .. ")")
            end
        end
        for _, bit in ipairs(row.bits or {}) do
            item:add(fields[row[1] .. "." .. bit[2]:lower()], tvb(at, len))
        end
    end
end

local function collective(tree, tvb, at)
    if at + 8 <= tvb:len() then
        add(tree:add(fields.collective, tvb(at, 8)), tvb, COLLECTIVE, at)
    end
end

local function rest(tree, tvb, at, field)
    if at < tvb:len() then
        tree:add(field, tvb(at))
    end
end

-- Two ranks and what each brings.
local function mismatch(tree, tvb, at)
    add(tree, tvb, MISMATCH, at)
    collective(tree, tvb, at + 4)
    collective(tree, tvb, at + 12)
end

local function hello(tree, tvb)
    add(tree, tvb, HELLO)
    local at = 22
    while at + 11 <= tvb:len() do
        local dead = tvb(at + 10, 1):uint()
        local len = math.min(11 + dead, tvb:len() - at)
        local advert = tree:add(fields.advert, tvb(at, len))
        add(advert, tvb, ADVERT, at)
        for port = at + 11, at + len - 1 do
            advert:add(fields.port, tvb(port, 1))
        end
        at = at + 11 + dead
    end
end

-- The kinds below 16: name, and how the rest is shown.
local SHARED = {
    [0] = { "PING", function(tree, tvb) add(tree, tvb, PING) end },
    [1] = { "PONG", function(tree, tvb) add(tree, tvb, PING) end },
    [2] = { "HELLO", hello },
    [3] = { "CARRY", function(tree, tvb) add(tree, tvb, CARRY) rest(tree, tvb, 28, fields.payload) end },
    [4] = { "CHALLENGE", function(tree, tvb) add(tree, tvb, CHALLENGE) end },
    [5] = { "RESPONSE", function(tree, tvb) add(tree, tvb, CHALLENGE) end },
    [6] = { "FRAGMENT", function(tree, tvb) add(tree, tvb, FRAGMENT) rest(tree, tvb, 24, fields.payload) end },
    [7] = { "PROGRESS", function(tree, tvb) collective(tree, tvb, 32) add(tree, tvb, PROGRESS) end },
    [8] = { "PAUSE", function(tree, tvb) add(tree, tvb, PAUSE) end },
}

-- SwitchML and parameter servers: what comes behind the header.
local function slot_kind(name, body)
    return { name, function(tree, tvb)
        collective(tree, tvb, 16)
        add(tree, tvb, SLOT)
        body(tree, tvb)
    end }
end
-- Whom a sum waits for; `from` is where it begins, less where it begins in SwitchML's packets.
local function report(tree, tvb, from)
    add(tree, tvb, REPORT, from)
    for at = from + 42, tvb:len() - 2, 2 do
        tree:add(fields.rank, tvb(at, 2))
    end
end
local function vector_at(at)
    return function(tree, tvb) rest(tree, tvb, at, fields.vector) end
end
local SLOT_KINDS = {
    [16] = slot_kind("UPDATE", vector_at(36)),
    [17] = slot_kind("RESULT", vector_at(36)),
    [18] = slot_kind("PROBE", vector_at(36)),
    [19] = slot_kind("QUERY", vector_at(36)),
    [20] = slot_kind("REPORT", function(tree, tvb) report(tree, tvb, 0) end),
    [21] = slot_kind("MISMATCH", function(tree, tvb) mismatch(tree, tvb, 36) end),
}
local PS_KINDS = {
    [32] = { "LEAVING", function(tree, tvb) add(tree, tvb, PARTING) end },
    [33] = { "PARTED", function(tree, tvb) add(tree, tvb, PARTING) end },
}
for kind, what in pairs(SLOT_KINDS) do
    PS_KINDS[kind] = what
end

local RING_KINDS = {
    [16] = { "DATA", function(tree, tvb)
        collective(tree, tvb, 16)
        add(tree, tvb, RING_DATA)
        rest(tree, tvb, 36, fields.vector)
    end },
    [17] = { "ACK", function(tree, tvb)
        add(tree, tvb, RING_ACK)
        for at = 32, tvb:len() - 8, 8 do
            tree:add(fields.word, tvb(at, 8))
        end
    end },
    [18] = { "NOTICE", function(tree, tvb) add(tree, tvb, RING_NOTICE) end },
    [19] = { "FAULT", function(tree, tvb)
        add(tree, tvb, RING_FAULT)
        collective(tree, tvb, 32)
        collective(tree, tvb, 40)
    end },
}

local function canary_kind(name, body)
    return { name, function(tree, tvb)
        add(tree, tvb, CANARY)
        collective(tree, tvb, 52)
        body(tree, tvb)
    end }
end
-- Hosts that sum for each other say the same of their links.
local SPARCML_KINDS = {
    [16] = { "DATA", function(tree, tvb)
        collective(tree, tvb, 16)
        add(tree, tvb, SPARCML_DATA)
        rest(tree, tvb, 44, fields.vector)
    end },
    [17] = RING_KINDS[17], [18] = RING_KINDS[18], [19] = RING_KINDS[19],
}

local CANARY_KINDS = {
    [16] = canary_kind("REDUCE", vector_at(60)),
    [17] = canary_kind("BROADCAST", vector_at(60)),
    [18] = canary_kind("REQUEST", vector_at(60)),
    [19] = canary_kind("FAILURE", vector_at(60)),
    [20] = canary_kind("QUERY", vector_at(60)),
    [21] = canary_kind("REPORT", function(tree, tvb) rest(tree, tvb, 60, fields.bitmap) end),
    [22] = canary_kind("MISMATCH", function(tree, tvb) mismatch(tree, tvb, 60) end),
    [23] = canary_kind("CLAIM", vector_at(60)),
}

local function panama_kind(name, body)
    return { name, function(tree, tvb)
        add(tree, tvb, PANAMA)
        collective(tree, tvb, 28)
        body(tree, tvb)
    end }
end
local PANAMA_KINDS = {
    [19] = panama_kind("WAITING", function(tree, tvb) report(tree, tvb, 2) end),
    [27] = panama_kind("MISMATCH", function(tree, tvb) mismatch(tree, tvb, 38) end),
}
for kind, name in pairs({
    [16] = "CONTRIBUTION", [17] = "RESULT", [18] = "LOST", [20] = "QUERY", [21] = "RESEND", [22] = "PASSED", [23] = "GONE",
    [24] = "SYNC", [25] = "BASE", [26] = "REWIND", [28] = "FIN", [29] = "FINASK", [30] = "FINDONE", [31] = "KNOWN",
}) do
    PANAMA_KINDS[kind] = panama_kind(name, vector_at(38))
end

local function atp_kind(name, body)
    return { name, function(tree, tvb)
        add(tree, tvb, ATP)
        collective(tree, tvb, 44)
        body(tree, tvb)
    end }
end
local ATP_KINDS = {
    [21] = atp_kind("REPORT", function(tree, tvb) report(tree, tvb, 16) end),
    [23] = atp_kind("MISMATCH", function(tree, tvb) mismatch(tree, tvb, 52) end),
    [24] = atp_kind("LEAVING", function(tree, tvb) add(tree, tvb, PARTING, 36) end),
    [25] = atp_kind("PARTED", function(tree, tvb) add(tree, tvb, PARTING, 36) end),
}
for kind, name in pairs({
    [16] = "GRADIENT", [17] = "SUM", [18] = "GACK", [19] = "AACK", [20] = "QUERY", [22] = "NEED",
}) do
    ATP_KINDS[kind] = atp_kind(name, vector_at(52))
end

local function flare_kind(name, body)
    return { name, function(tree, tvb)
        collective(tree, tvb, 16)
        local has_exponent = tvb:len() > 34 and tvb(34, 1):uint() >= 8
        add(tree, tvb, has_exponent and { table.unpack(FLARE, 1, #FLARE - 1) } or FLARE)
        add(tree, tvb, has_exponent and FLARE_EXPONENT or {})
        body(tree, tvb)
    end }
end
local FLARE_KINDS = {
    [16] = flare_kind("UPDATE", vector_at(40)),
    [17] = flare_kind("RESULT", vector_at(40)),
    [18] = flare_kind("PROBE", vector_at(40)),
    [19] = flare_kind("QUERY", vector_at(40)),
    [20] = flare_kind("REPORT", function(tree, tvb) report(tree, tvb, 4) end),
    [21] = flare_kind("MISMATCH", function(tree, tvb) mismatch(tree, tvb, 40) end),
}
local function sparse_kind(name, body)
    return { name, function(tree, tvb)
        collective(tree, tvb, 16)
        add(tree, tvb, { FLARE[1], FLARE[2], FLARE[3] })
        add(tree, tvb, FLARE_SPARSE)
        body(tree, tvb)
    end }
end
local function shards(tree, tvb)
    tree:add(fields.shards, tvb(40, 8))
end
for kind, what in pairs({
    [32] = sparse_kind("SHARD", vector_at(40)),
    [33] = sparse_kind("SUM", vector_at(40)),
    [34] = sparse_kind("TAKEN", shards),
    [35] = sparse_kind("HAVE", shards),
    [36] = sparse_kind("WANT", shards),
    [37] = sparse_kind("QUERY", vector_at(40)),
    [38] = sparse_kind("REPORT", function(tree, tvb) report(tree, tvb, 4) end),
    [39] = sparse_kind("MISMATCH", function(tree, tvb) mismatch(tree, tvb, 40) end),
}) do
    FLARE_KINDS[kind] = what
end

local KINDS = {
    [1] = SLOT_KINDS, [2] = RING_KINDS, [3] = CANARY_KINDS, [4] = PS_KINDS, [5] = PANAMA_KINDS, [6] = ATP_KINDS,
    [7] = ATP_KINDS, [8] = FLARE_KINDS, [9] = SPARCML_KINDS,
}

local function is_ours(tvb)
    return tvb:len() >= 16 and tvb(0, 2):uint() == 0x5442
end

function tributary.dissector(tvb, pinfo, root)
    if not is_ours(tvb) then
        return 0
    end
    local tree = root:add(tributary, tvb())
    add(tree, tvb, COMMON)
    pinfo.cols.protocol = "Tributary"
    local version, protocol, kind = tvb(2, 1):uint(), tvb(3, 1):uint(), tvb(4, 1):uint()
    local what = kind < 16 and SHARED[kind] or (KINDS[protocol] or {})[kind]
    if version ~= 2 or not what then
        tree:add_proto_expert_info(strange)
        rest(tree, tvb, 16, fields.payload)
        return tvb:len()
    end
    tree:add(fields.kind_name, what[1]):set_generated()
    what[2](tree, tvb)
    local who = PROTOCOLS[protocol] or "all"
    tree:append_text(string.format(", %s %s, job %d", who, what[1], tvb(6, 2):uint()))
    pinfo.cols.info = string.format("%s %s, job %d, %d bytes", who, what[1], tvb(6, 2):uint(), tvb:len())
    return tvb:len()
end

tributary:register_heuristic("udp", function(tvb, pinfo, root)
    if not is_ours(tvb) then
        return false
    end
    tributary.dissector(tvb, pinfo, root)
    return true
end)
