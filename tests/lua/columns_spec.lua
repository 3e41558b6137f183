local columns = require "neap.columns"

describe("a text takes so many columns of a terminal:", function()
  for _, case in ipairs {
    -- text                  columns  because
    { "", 0, "there is none" },
    { "plain", 5, "ASCII is narrow" },
    { "h\195\169 \226\130\172 \240\157\132\158", 6, "so are letters of 2, 3 and 4 bytes" },
    { "e\204\129", 1, "an accent is above its letter" },
    { "\224\184\129\224\184\180\224\185\136", 1, "so are Thai vowels and tones" },
    { "a\226\128\139b\239\187\191", 2, "what has no width has none" },
    { "\230\150\153\233\135\145", 4, "ideographs are wide" },
    { "\227\129\139\227\130\153", 2, "so are kana, their marks not" },
    { "\237\149\156", 2, "so are Hangul syllables" },
    { "\225\132\146\225\133\161\225\134\171", 2, "and the three parts of one" },
    { "\239\188\161\239\189\177", 3, "there are wide Latin letters and narrow kana" },
    { "\240\159\154\128\240\159\152\128", 4, "emoji are wide" },
    { "\240\160\128\128", 2, "rare ideographs too" },
    { "\226\157\164\239\184\143", 1, "a heart is a letter, its variation nothing" },
    { "\255\230\150x\169", 5, "each byte that is part of no character is one" },
  } do
    it(("%d, as %s"):format(case[2], case[3]), function()
      assert.equal(case[2], columns.count(case[1]))
    end)
  end
end)

describe("a text is cut", function()
  for _, case in ipairs {
    { "abc", 2, "ab" }, { "abc", 3, "abc" }, { "abc", 0, "" },
    { "a\230\150\153b", 2, "a" }, { "a\230\150\153b", 3, "a\230\150\153" },
    { "e\204\129x", 1, "e\204\129" }, { "\255\230\150\153", 1, "\255" },
  } do
    it(("to %d columns, in front of what has no room: %s"):format(case[2], case[3]), function()
      assert.equal(case[3], columns.cut(case[1], case[2]))
    end)
  end
end)
