exports.main = ({ greeting, name }) => ({ text: `${greeting || 'Hi'}, ${name || 'you'}` })
